//! Nothing is admitted without a durable intent.
use palyra_core::corridor::Admitted;

fn forge(call: palyra_core::CallId, plan: palyra_core::PlanDigest) -> Admitted {
    Admitted { call, plan }
}

fn main() {}
