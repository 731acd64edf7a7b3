//! What one run may use up. A run is what one connection does.

use std::sync::Mutex;
use std::time::Duration;

use palyra_core::{Denial, DenialCode};

/// The limits of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Calls.
    pub calls: u64,
    /// Wall-clock time of its executions, added up.
    pub wall: Duration,
    /// Bytes of arguments.
    pub input_bytes: u64,
    /// Bytes of output.
    pub output_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            calls: 10_000,
            wall: Duration::from_secs(12 * 3_600),
            input_bytes: 1 << 30,
            output_bytes: 4 << 30,
        }
    }
}

#[derive(Debug, Default)]
struct Used {
    calls: u64,
    wall: Duration,
    input_bytes: u64,
    output_bytes: u64,
}

/// What a run has used so far.
#[derive(Debug, Default)]
pub struct Usage(Mutex<Used>);

impl Usage {
    /// Counts one more call, or says which part of the budget is spent.
    ///
    /// # Errors
    /// The denial to answer with; nothing was counted.
    pub fn charge(&self, budget: &Budget, input_bytes: u64) -> Result<(), Denial> {
        let mut used = self.lock();
        let spent = |what: &str, limit: String| {
            let reason = format!("this run has used up its {what} ({limit})");
            let next_step =
                "start a new run (a new connection), or raise `[budget]` in palyra.toml";
            Err(Denial::new(DenialCode::BudgetExhausted, reason, next_step))
        };
        if used.calls >= budget.calls {
            return spent("calls", budget.calls.to_string());
        }
        if used.wall >= budget.wall {
            return spent("execution time", format!("{} s", budget.wall.as_secs()));
        }
        if used.output_bytes >= budget.output_bytes {
            return spent("output", format!("{} bytes", budget.output_bytes));
        }
        let input = used.input_bytes.saturating_add(input_bytes);
        if input > budget.input_bytes {
            return spent("input", format!("{} bytes", budget.input_bytes));
        }
        used.input_bytes = input;
        used.calls += 1;
        Ok(())
    }

    /// Counts what an execution used.
    pub fn executed(&self, wall: Duration, output_bytes: u64) {
        let mut used = self.lock();
        used.wall = used.wall.saturating_add(wall);
        used.output_bytes = used.output_bytes.saturating_add(output_bytes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Used> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<(), Denial>) -> Option<DenialCode> {
        result.err().map(|denial| denial.code)
    }

    #[test]
    fn each_part_runs_out() {
        let budget = Budget {
            calls: 2,
            input_bytes: 10,
            ..Budget::default()
        };
        let usage = Usage::default();
        assert_eq!(
            code(usage.charge(&budget, 11)),
            Some(DenialCode::BudgetExhausted)
        );
        assert_eq!(code(usage.charge(&budget, 10)), None);
        assert_eq!(code(usage.charge(&budget, 0)), None);
        assert_eq!(
            code(usage.charge(&budget, 0)),
            Some(DenialCode::BudgetExhausted)
        );

        let usage = Usage::default();
        usage.executed(budget.wall, 0);
        assert_eq!(
            code(usage.charge(&budget, 0)),
            Some(DenialCode::BudgetExhausted)
        );

        let usage = Usage::default();
        usage.executed(Duration::ZERO, budget.output_bytes);
        assert_eq!(
            code(usage.charge(&budget, 0)),
            Some(DenialCode::BudgetExhausted)
        );
    }
}
