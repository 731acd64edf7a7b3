//! The corridor's walls, tried from outside; and canonical JSON against random documents.

#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod canonical;
mod walls;
