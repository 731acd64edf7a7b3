//! The daemon as its users meet it.
