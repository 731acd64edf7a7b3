//! Arguments that name something outside: paths beyond the workspace, and addresses.

use palyra_core::{Effect, ProgramGroup};

use crate::programs::Entry;
use crate::unfold::Unfolder;
use crate::words::Word;
use crate::{network, paths, risk};

/// Arguments of one command that are looked at.
const MOST_OPERANDS: usize = 256;

impl Unfolder<'_> {
    /// Arguments that are paths outside the workspace are effects, raise the risk and narrow the
    /// scopes. Which of them are only read is known of few programs.
    pub(crate) fn note_operands(&mut self, name: &str, entry: &Entry, arguments: &[Word]) {
        // Their operands are text, or the words of another command.
        if matches!(
            name,
            "echo" | "printf" | "test" | "[" | "expr" | "basename" | "dirname"
        ) {
            return;
        }
        let copies = matches!(name, "cp" | "install" | "scp" | "rsync");
        let client = entry.is(ProgramGroup::Network) && !copies && !entry.is(ProgramGroup::Vcs);
        let touch = if entry.is(ProgramGroup::Wrappers) || client || entry.shell.is_some() {
            Touch::Named
        } else if entry.is(ProgramGroup::Destructive) || matches!(name, "tee" | "touch" | "mkdir") {
            Touch::Write
        } else if entry.writes || entry.is(ProgramGroup::Vcs) || !entry.is_known() {
            Touch::Both
        } else {
            Touch::Read
        };
        if arguments.len() > MOST_OPERANDS {
            self.notes.insert(risk::Note::Outside);
        }
        let target = arguments
            .iter()
            .any(|word| word.shown().starts_with("-t") || word.shown().starts_with("--t"));
        let last = arguments.last().and_then(Word::known);
        for word in arguments.iter().filter_map(Word::known).take(MOST_OPERANDS) {
            // A text to run may look like a path.
            if entry.is(ProgramGroup::Interpreters) && word.contains([' ', '\n', ';', '{', '(']) {
                continue;
            }
            let source = copies && !target && last != Some(word);
            let touch = match word.split_once('=').map(|(option, _)| option) {
                Some("if") => Touch::Read,
                Some("of") => Touch::Write,
                Some(_) | None if source => Touch::Read,
                Some(_) | None => touch,
            };
            for path in named_paths(word) {
                if has_scheme(path) {
                    if !entry.plain && !entry.is(ProgramGroup::Network) {
                        network::connect_url(self, path);
                    }
                    continue;
                }
                if path.starts_with('~') {
                    self.notes.insert(risk::Note::Outside);
                }
                self.outside(path, touch);
            }
        }
    }

    /// A path that leads out of the workspace, from wherever the call may stand.
    fn outside(&mut self, given: &str, touch: Touch) {
        for folder in self.folders.clone() {
            let real = self.resolver.real(&folder.join(given));
            let inside = real
                .as_ref()
                .is_some_and(|real| real.starts_with(self.workspace) || paths::is_harmless(real));
            if inside {
                continue;
            }
            self.notes.insert(risk::Note::Outside);
            let Some(path) = real else { continue };
            if matches!(touch, Touch::Read | Touch::Both) {
                self.effect(Effect::FsRead { path: path.clone() });
            }
            if matches!(touch, Touch::Write | Touch::Both) {
                self.effect(Effect::FsWrite { path });
            }
        }
    }
}

/// What a program does to a path that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// Seen elsewhere, or not known to be a path.
    Named,
    Read,
    Write,
    Both,
}

/// The paths that one argument may name: `x`, `if=x`, `--file=x`, `-fx`, `-xf/x`.
fn named_paths(word: &str) -> Vec<&str> {
    let value = word.split_once('=').map(|(_, value)| value);
    let Some(option) = word.strip_prefix('-') else {
        return match (has_scheme(word), value) {
            (false, Some(value)) => vec![word, value],
            _ => vec![word],
        };
    };
    if let Some(value) = value {
        return vec![value];
    }
    let attached = option
        .char_indices()
        .nth(1)
        .and_then(|(at, _)| option.get(at..));
    // `-xf/x`, but not `-f./x`
    let rooted = option.find('/').filter(|at| {
        !option
            .get(..*at)
            .is_some_and(|before| before.ends_with('.'))
    });
    let rooted = rooted.and_then(|at| option.get(at..));
    let attached = attached.filter(|text| text.contains('/') || *text == "..");
    attached.into_iter().chain(rooted).collect()
}

/// `https://…`, as a whole word.
fn has_scheme(word: &str) -> bool {
    let scheme = word.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    })
}
