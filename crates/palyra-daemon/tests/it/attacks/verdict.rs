//! What came of an attack.

use palyra_testkit::Ran;

/// What came of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It worked.
    Open(String),
    /// It was refused: an errno, a signal, or why what it did was not worth anything.
    Held(String),
    /// This kernel lacks what it aims at.
    Absent(String),
    /// Nothing could be found out, so the test fails.
    Broken(String),
}

impl Verdict {
    /// From what the attacker printed, or how it ended when it could not print anything.
    pub(crate) fn of(ran: &Ran) -> Self {
        let said = ran.stdout.lines().rev().find_map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "open" => Some(Self::Open(rest.to_owned())),
                "held" => Some(Self::Held(rest.to_owned())),
                "absent" => Some(Self::Absent(rest.to_owned())),
                _ => None,
            }
        });
        said.unwrap_or_else(|| Self::of_the_silent(ran))
    }

    fn of_the_silent(ran: &Ran) -> Self {
        match ran.code {
            Some(137) => Self::Held("SIGKILL".to_owned()),
            Some(159) => Self::Held("SIGSYS".to_owned()),
            Some(139) => Self::Held("SIGSEGV".to_owned()),
            Some(135) => Self::Held("SIGBUS".to_owned()),
            _ => Self::Broken(format!("{ran:?}")),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// In the few letters that a table has.
    pub(crate) fn short(&self) -> String {
        match self {
            Self::Open(_) => "open".to_owned(),
            Self::Held(why) => {
                let why = why.split(' ').next().unwrap_or_default();
                format!("held {}", why.get(..17).unwrap_or(why))
            }
            Self::Absent(why) => format!("absent {why}"),
            Self::Broken(_) => "BROKEN".to_owned(),
        }
    }
}
