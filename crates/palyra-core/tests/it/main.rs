//! The corridor's walls, tried from outside; and canonical JSON against random documents.

mod canonical;
mod walls;
