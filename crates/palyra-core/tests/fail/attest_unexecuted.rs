//! Nothing is attested that was not executed.
use palyra_core::corridor::Finished;

fn forge(call: palyra_core::CallId, seal: palyra_core::PlanSeal, report: palyra_core::ExecutionReport) -> Finished<()> {
    Finished { call, seal, report, output: () }
}

fn main() {}
