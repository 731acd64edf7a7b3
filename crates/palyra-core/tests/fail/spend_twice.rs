//! A permit is spent once.
use palyra_core::corridor::{Admits, Permit};

async fn spend_twice(permit: Permit, ledger: &mut impl Admits) {
    let _ = permit.admit(ledger).await;
    let _ = permit.admit(ledger).await;
}

fn main() {}
