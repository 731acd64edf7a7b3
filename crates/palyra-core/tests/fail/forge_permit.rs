//! A permit cannot be made by hand.
use palyra_core::corridor::Permit;

fn forge(call: palyra_core::CallId, digest: palyra_core::CallDigest, plan: palyra_core::PlanDigest, seal: palyra_core::PlanSeal) -> Permit {
    Permit { call, digest, plan, seal, grant: None, matched: Vec::new() }
}

fn main() {}
