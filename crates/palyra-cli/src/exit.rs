//! The exit codes: one table, used by every command and printed by `palyra exit-codes`.
//!
//! `exec` has a column of its own, because its child has exit codes too. A code that only Palyra
//! gives starts at 120, where programs rarely go; `--json` tells the two apart for certain.

use palyra_api::wire::{CallResult, Outcome, Problem};

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// It did what was asked.
    Ok,
    /// Anything that has no code of its own.
    Error,
    /// The command line does not make sense.
    Usage,
    /// Policy, a budget or a limit said no.
    Denied,
    /// A person said no, or nobody answered.
    NotApproved,
    /// The daemon was never reached: nothing has run.
    Unreachable,
    /// The sandbox cannot be built here.
    NoSandbox,
    /// What was verified fits together, and nobody known signed it.
    SignerUnknown,
    /// What was verified was changed, cut or replaced.
    Faulty,
    /// The call's time was over.
    TimedOut,
    /// The program may not be executed.
    NotExecutable,
    /// There is no such program.
    NotFound,
    /// Interrupted from the keyboard.
    Interrupted,
    /// Whoever read our output went away.
    PipeClosed,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The code of `exec`.
    pub exec: u8,
    /// The code of every other command.
    pub general: u8,
    /// What it means.
    pub what: &'static str,
}

impl Meaning {
    /// Every meaning, in the order of the general codes.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::Error,
        Self::Usage,
        Self::Denied,
        Self::NotApproved,
        Self::Unreachable,
        Self::NoSandbox,
        Self::SignerUnknown,
        Self::Faulty,
        Self::TimedOut,
        Self::NotExecutable,
        Self::NotFound,
        Self::Interrupted,
        Self::PipeClosed,
    ];

    /// The table.
    #[must_use]
    pub const fn row(self) -> Row {
        let (general, exec, what) = match self {
            Self::Ok => (0, 0, "it did what was asked"),
            Self::Error => (1, 125, "an error that has no code of its own"),
            Self::Usage => (2, 125, "the command line does not make sense"),
            Self::Denied => (3, 120, "denied by policy, a budget or a limit"),
            Self::NotApproved => (4, 121, "approval denied or expired"),
            Self::Unreachable => (5, 123, "daemon unreachable: nothing has run"),
            Self::NoSandbox => (6, 122, "sandbox unavailable on this machine"),
            Self::SignerUnknown => (7, 125, "verified: self-consistent, signer unknown"),
            Self::Faulty => (8, 125, "verified: changed, cut or replaced"),
            Self::TimedOut => (1, 124, "timed out"),
            Self::NotExecutable => (1, 126, "the program may not be executed"),
            Self::NotFound => (1, 127, "no such program"),
            Self::Interrupted => (
                130,
                130,
                "interrupted (Ctrl-C); a running call is cancelled",
            ),
            Self::PipeClosed => (0, 141, "whoever read the output went away"),
        };
        Row {
            exec,
            general,
            what,
        }
    }

    /// How a call that did not complete ended, by its outcome and code.
    fn of_outcome(outcome: Outcome, code: Option<&str>) -> Self {
        match outcome {
            Outcome::Completed => Self::Ok,
            Outcome::Denied if code == Some("approval_pending") => Self::NotApproved,
            Outcome::Denied => Self::Denied,
            Outcome::ApprovalDenied | Outcome::ApprovalExpired => Self::NotApproved,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::SandboxUnavailable => Self::NoSandbox,
            Outcome::Cancelled | Outcome::Interrupted => Self::Error,
            Outcome::Failed => code.and_then(Self::of_code).unwrap_or(Self::Error),
        }
    }

    /// What a stable code means, when it means more than "an error".
    fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "program_not_found" => Self::NotFound,
            "program_not_executable" => Self::NotExecutable,
            "sandbox_unavailable" | "sandbox_degraded" => Self::NoSandbox,
            "denied_by_policy"
            | "policy_unavailable"
            | "rate_limited"
            | "budget_exhausted"
            | "secret_in_arguments"
            | "agent_paused"
            | "no_approver"
            | "tool_disabled"
            | "vault_locked"
            | "presence_needed"
            | "presence_required"
            | "presence_not_set"
            | "presence_no_device"
            | "needs_two_people"
            | "wrong_passphrase" => Self::Denied,
            "approval_denied" | "approval_expired" | "approval_cancelled" | "grant_spent" => {
                Self::NotApproved
            }
            _ => return None,
        })
    }

    /// What an answer that is not a success means; 403 is a denial whatever its code.
    #[must_use]
    pub fn of_refusal(status: Option<u16>, problem: &Problem) -> Self {
        match (Self::of_code(&problem.code), status) {
            (Some(meaning), _) => meaning,
            (None, Some(403 | 429)) => Self::Denied,
            (None, Some(_) | None) => Self::Error,
        }
    }
}

/// What a command leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// A code of Palyra's.
    Ours(Meaning),
    /// The code of what `exec` ran.
    Childs(u8),
    /// A signal to ourselves, as a shell would report it.
    Signalled(u8),
}

impl Exit {
    /// Success.
    pub const OK: Self = Self::Ours(Meaning::Ok);

    /// How `exec` and `call` end after this result. Only `exec` speaks for its child.
    #[must_use]
    pub fn of_result(result: &CallResult, speaks_for_child: bool) -> Self {
        let code = result.problem.as_ref().map(|problem| problem.code.as_str());
        let meaning = Meaning::of_outcome(result.outcome, code);
        if result.outcome != Outcome::Completed || !speaks_for_child {
            return Self::Ours(meaning);
        }
        match (result.signal, result.exit_code) {
            (Some(signal), _) => Self::Childs(128_u8.saturating_add(low_byte(signal))),
            (None, Some(code)) => Self::Childs(low_byte(code)),
            (None, None) => Self::OK,
        }
    }

    /// The number for the shell.
    #[must_use]
    pub const fn code(self, of_exec: bool) -> u8 {
        match self {
            Self::Ours(meaning) if of_exec => meaning.row().exec,
            Self::Ours(meaning) => meaning.row().general,
            Self::Childs(code) => code,
            Self::Signalled(signal) => 128_u8.saturating_add(signal),
        }
    }
}

/// What `wait(2)` would leave of it.
fn low_byte(number: i32) -> u8 {
    u8::try_from(number.rem_euclid(256)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(outcome: Outcome) -> CallResult {
        CallResult {
            call_id: "call_x".to_owned(),
            outcome,
            exit_code: None,
            signal: None,
            output: None,
            problem: None,
            approval_id: None,
            attestation: None,
        }
    }

    fn failed(code: &str) -> CallResult {
        CallResult {
            problem: Some(Problem {
                code: code.to_owned(),
                message: String::new(),
                next_step: String::new(),
            }),
            ..result(Outcome::Failed)
        }
    }

    fn codes(result: &CallResult) -> (u8, u8) {
        (
            Exit::of_result(result, true).code(true),
            Exit::of_result(result, false).code(false),
        )
    }

    #[test]
    fn every_outcome_has_its_documented_code() {
        for (outcome, exec, call) in [
            (Outcome::Completed, 0, 0),
            (Outcome::Denied, 120, 3),
            (Outcome::ApprovalDenied, 121, 4),
            (Outcome::ApprovalExpired, 121, 4),
            (Outcome::SandboxUnavailable, 122, 6),
            (Outcome::TimedOut, 124, 1),
            (Outcome::Cancelled, 125, 1),
            (Outcome::Interrupted, 125, 1),
            (Outcome::Failed, 125, 1),
        ] {
            assert_eq!(codes(&result(outcome)), (exec, call), "{outcome:?}");
        }
    }

    #[test]
    fn failures_speak_by_their_code() {
        for (code, exec, call) in [
            ("program_not_found", 127, 1),
            ("program_not_executable", 126, 1),
            ("sandbox_unavailable", 122, 6),
            ("sandbox_degraded", 122, 6),
            ("runtime_failure", 125, 1),
        ] {
            assert_eq!(codes(&failed(code)), (exec, call), "{code}");
        }
    }

    #[test]
    fn the_child_speaks_through_exec_only() {
        let with = |exit_code, signal| CallResult {
            exit_code,
            signal,
            ..result(Outcome::Completed)
        };
        assert_eq!(codes(&with(Some(7), None)), (7, 0));
        assert_eq!(codes(&with(Some(120), None)), (120, 0));
        assert_eq!(codes(&with(None, Some(9))), (137, 0));
        assert_eq!(codes(&with(Some(-1), None)), (255, 0));
    }

    #[test]
    fn refusals() {
        let problem = |code: &str| Problem {
            code: code.to_owned(),
            message: String::new(),
            next_step: String::new(),
        };
        let meaning = |status, code| Meaning::of_refusal(status, &problem(code));
        assert_eq!(meaning(Some(403), "caller_is_a_tool"), Meaning::Denied);
        assert_eq!(meaning(Some(429), "rate_limited"), Meaning::Denied);
        assert_eq!(meaning(Some(409), "approval_expired"), Meaning::NotApproved);
        assert_eq!(meaning(Some(404), "unknown_tool"), Meaning::Error);
        assert_eq!(meaning(None, "program_not_found"), Meaning::NotFound);
        assert_eq!(meaning(None, "sandbox_degraded"), Meaning::NoSandbox);
    }

    #[test]
    fn the_codes_are_the_documented_ones() {
        let general = |meaning: Meaning| meaning.row().general;
        let exec = |meaning: Meaning| meaning.row().exec;
        assert_eq!(
            [
                Meaning::Ok,
                Meaning::Error,
                Meaning::Usage,
                Meaning::Denied,
                Meaning::NotApproved,
                Meaning::Unreachable,
                Meaning::NoSandbox
            ]
            .map(general),
            [0, 1, 2, 3, 4, 5, 6]
        );
        assert_eq!(
            [
                Meaning::Denied,
                Meaning::NotApproved,
                Meaning::NoSandbox,
                Meaning::Unreachable,
                Meaning::TimedOut,
                Meaning::Error,
                Meaning::NotExecutable,
                Meaning::NotFound
            ]
            .map(exec),
            [120, 121, 122, 123, 124, 125, 126, 127]
        );
        assert_eq!(exec(Meaning::Usage), 125);
    }
}
