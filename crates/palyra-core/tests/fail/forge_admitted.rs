//! Nothing is admitted without a durable intent.
use palyra_core::corridor::Admitted;

fn forge(call: palyra_core::CallId, plan: palyra_core::PlanDigest, seal: palyra_core::PlanSeal) -> Admitted {
    Admitted { call, plan, seal }
}

fn main() {}
