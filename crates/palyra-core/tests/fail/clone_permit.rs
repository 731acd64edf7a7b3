//! A permit cannot be copied.
use palyra_core::corridor::Permit;

fn copy(permit: &Permit) -> Permit {
    permit.clone()
}

fn main() {}
