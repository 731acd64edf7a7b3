//! An executor cannot be called around the corridor: nobody else can make a `Running`.
use palyra_core::corridor::{Executes, Running};

async fn run<E: Executes>(executor: &E, plan: E::Plan, call: &palyra_core::CallId, digest: &palyra_core::PlanDigest) {
    let running = Running { call, plan: digest };
    let _ = executor.run(running, plan).await;
}

fn main() {}
