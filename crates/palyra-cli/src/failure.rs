//! What went wrong, for its reader: a sentence, and the command that fixes it.

use palyra_api::ClientError;
use palyra_api::wire::{ErrorBody, Problem};

use crate::exit::Meaning;

/// The end of a command that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which exit code.
    pub meaning: Meaning,
    /// For programs.
    pub code: String,
    /// For a person.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Failure {
    /// A failure with a code of ours.
    pub fn new(
        meaning: Meaning,
        code: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            meaning,
            code: code.to_owned(),
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// The command line parses but cannot be meant.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Meaning::Usage, "usage", message, hint)
    }

    /// A problem the daemon stated; without a status it came inside a call's stream.
    #[must_use]
    pub fn stated(status: Option<u16>, problem: Problem) -> Self {
        Self {
            meaning: Meaning::of_refusal(status, &problem),
            code: problem.code,
            message: problem.message,
            hint: problem.next_step,
        }
    }

    /// Our own output could not be written.
    #[must_use]
    pub fn unwritable(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Meaning::PipeClosed, "pipe_closed", "", "");
        }
        Self::new(
            Meaning::Error,
            "output_not_written",
            format!("the output could not be written: {error}"),
            "make room or write somewhere else, then ask again; `palyra calls list` shows what ran",
        )
    }

    /// Whether there is anything to say: a closed pipe has no reader left.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.meaning == Meaning::PipeClosed
    }

    /// The shape under `--json`, the same as the daemon's.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: Problem {
                code: self.code.clone(),
                message: self.message.clone(),
                next_step: self.hint.clone(),
            },
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::NoDaemon { .. } => Self::new(
                Meaning::Unreachable,
                "no_daemon",
                message,
                "run `palyra exec -- true` to start one, or `palyrad` to keep one in the foreground",
            ),
            ClientError::Forbidden { .. } => Self::new(
                Meaning::Unreachable,
                "daemon_forbidden",
                message,
                "run it as the daemon's owner and outside of a Palyra call; \
                 a tool never speaks to the daemon",
            ),
            ClientError::Refused { status, problem } => Self::stated(Some(status), problem),
            ClientError::Broken(_) => Self::new(
                Meaning::Error,
                "connection_broken",
                message,
                "`palyra status` shows whether the daemon is there, `palyra calls list` what ran",
            ),
        }
    }
}

impl From<palyra_api::home::NoHome> for Failure {
    fn from(error: palyra_api::home::NoHome) -> Self {
        Self::new(
            Meaning::Error,
            "no_home",
            error.to_string(),
            "for example `export PALYRA_HOME=$HOME/.palyra`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_is_unreachable_but_not_absent() {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let socket = "/s".to_owned();
        let forbidden = Failure::from(ClientError::Forbidden { socket, source });
        assert_eq!(forbidden.meaning, Meaning::Unreachable);
        assert_eq!(forbidden.code, "daemon_forbidden");
        assert!(!forbidden.hint.contains("start"));
    }

    #[test]
    fn a_broken_conversation_is_not_unreachable() {
        // 5 and 123 promise that nothing has run.
        let broken = Failure::from(ClientError::Broken("reset".to_owned()));
        assert_eq!(broken.meaning, Meaning::Error);
    }

    #[test]
    fn a_closed_pipe_says_nothing() {
        let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(Failure::unwritable(&closed).is_silent());
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(!Failure::unwritable(&full).is_silent());
    }
}
