//! The helper of `palyra-sandbox`; started by the daemon, of no use by hand.

fn main() {}
