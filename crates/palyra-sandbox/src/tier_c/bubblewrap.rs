//! The cage as `bwrap` is asked to build it, for hosts that grant user namespaces to nobody else.
//!
//! [`arguments`] is pure: the same cage and the same look at the host give the same words, which are
//! compared with a golden file. `bwrap` makes namespaces and mounts, and starts `palyra-jail inner`
//! in them, which does the rest: limits, Landlock, the filter, and looking whether all of it stands.

use std::ffi::OsString;
use std::path::Path;

use super::cage::{COVERED_IN_PROC, Cage, Step};
use crate::ground::policy::{Guard, Hold};

/// Where `bwrap` is looked for. Not in `PATH`: whoever puts something there runs outside of every
/// wall.
pub(crate) const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];

/// Where the helper is inside.
const HELPER: &str = "/.palyra-jail";

/// What is at a path, without any links on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Folder,
    File,
    /// Nothing, or something that a link leads to.
    Nothing,
}

/// Descriptors that `bwrap` and the helper inherit, by number.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    /// The helper's program, to be copied into the cage.
    pub(crate) program: i32,
    /// What the helper is handed, in the order in which it expects it.
    pub(crate) handed: Vec<i32>,
    /// The copies of what runs, in the order of their steps.
    pub(crate) copies: Vec<i32>,
}

/// The words for `bwrap`, its own name first.
pub(crate) fn arguments(
    cage: &Cage,
    descriptors: &Descriptors,
    found: &dyn Fn(&Path) -> Found,
) -> Vec<OsString> {
    let mut words = Words(Vec::new());
    words.add(["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc"]);
    words.add(["--unshare-uts", "--unshare-cgroup"]);
    if cage.isolated_network {
        words.add(["--unshare-net"]);
    }
    // As the first process: it buries what ends, and says how the call ended.
    words.add(["--as-pid-1", "--die-with-parent", "--new-session"]);
    words.add(["--cap-drop", "ALL", "--clearenv", "--hostname", "palyra"]);
    let folders_in_memory = cage
        .steps
        .iter()
        .filter(|step| matches!(step, Step::Scratch { .. }))
        .count();
    let share = cage.scratch / u64::try_from(folders_in_memory.max(1)).unwrap_or(1);
    let mut devices = false;
    let mut copies = descriptors.copies.iter();
    for step in &cage.steps {
        match step {
            // `--dev` makes these by itself, with terminals that nobody else has.
            Step::Link { at, .. } if at.starts_with("/dev") => {}
            Step::Device { .. } | Step::Terminals if devices => {}
            Step::Device { .. } | Step::Terminals => {
                devices = true;
                words.add(["--dev", "/dev"]);
            }
            Step::Link { at, to } => words.pair("--symlink", to, at),
            Step::Read { at } => match found(at) {
                Found::Folder | Found::File => words.pair("--ro-bind-try", at, at),
                Found::Nothing => {}
            },
            Step::Workspace { at, writable, .. } => {
                let how = if *writable { "--bind" } else { "--ro-bind" };
                words.pair(how, at, at);
            }
            // A cage with doors, or with files for those who go through them, is not asked of `bwrap`.
            Step::Laid(_) => {}
            Step::Scratch { at, mode } => words.in_memory(at, *mode, share),
            Step::Proc { full } => {
                words.add(["--proc", "/proc"]);
                // There is no `subset=pid` to be had: what gives away most is covered at least.
                let names = COVERED_IN_PROC.iter().filter(|_| !full);
                for name in names {
                    words.cover(&Path::new("/proc").join(name), None, found);
                }
            }
            Step::Pin { at } => {
                if found(at) == Found::Folder {
                    words.pair("--bind", at, at);
                }
            }
            Step::Cover { at, within } => words.cover(at, within.as_deref(), found),
            Step::Guard(guard) => words.hold(guard, cage.workspace(), found),
            Step::Code(copy) => {
                if let Some(number) = copies.next() {
                    words.add(["--perms", "0555", "--ro-bind-data", &number.to_string()]);
                    words.0.push(cage.workspace().join(&copy.at).into());
                }
            }
        }
    }
    let program = descriptors.program.to_string();
    words.add(["--perms", "0555", "--ro-bind-data", &program, HELPER]);
    words.add(["--remount-ro", "/", "--chdir", "/", "--", HELPER, "inner"]);
    let handed = descriptors.handed.iter().map(ToString::to_string);
    words.0.extend(handed.map(OsString::from));
    words.0
}

struct Words(Vec<OsString>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn pair(&mut self, what: &str, from: &Path, to: &Path) {
        self.0.extend([what.into(), from.into(), to.into()]);
    }

    fn one(&mut self, what: &str, at: &Path) {
        self.0.extend([what.into(), at.into()]);
    }

    fn in_memory(&mut self, at: &Path, mode: u32, bytes: u64) {
        self.add(["--perms", &format!("{mode:04o}")]);
        self.add(["--size", &bytes.to_string()]);
        self.one("--tmpfs", at);
    }

    /// Holds something in the workspace. `bwrap` goes by its path, so what is there by now may be
    /// something else: the helper inside looks whether it is held.
    fn hold(&mut self, guard: &Guard, workspace: &Path, found: &dyn Fn(&Path) -> Found) {
        let at = workspace.join(guard.at.path());
        match (guard.hold, found(&at)) {
            (_, Found::Nothing) => {}
            (Hold::Pinned | Hold::Writable, _) => self.pair("--bind", &at, &at),
            (Hold::ReadOnly, _) => self.pair("--ro-bind", &at, &at),
            (Hold::Masked, Found::Folder | Found::File) => self.cover(&at, None, found),
        }
    }

    /// Hides what is there. What is not there cannot be made: the folder that it would be in, which
    /// is pinned, is only shown.
    fn cover(&mut self, at: &Path, within: Option<&Path>, found: &dyn Fn(&Path) -> Found) {
        match found(at) {
            Found::Folder => {
                self.in_memory(at, 0, 4_096);
                self.one("--remount-ro", at);
            }
            // On a mount without devices this one does not open.
            Found::File => self.pair("--ro-bind", Path::new("/dev/null"), at),
            Found::Nothing => {
                let below = within.map(|within| at.ancestors().take_while(move |it| *it != within));
                let mut above = below.into_iter().flatten().skip(1);
                if let Some(folder) = above.find(|it| found(it) == Found::Folder) {
                    self.one("--remount-ro", folder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    /// The whole of it, as it was last looked at by a person.
    #[test]
    fn the_words_for_bubblewrap_are_as_they_were_agreed() {
        let cage = golden::cage();
        let descriptors = Descriptors {
            program: 9,
            handed: vec![10, 11, 12],
            copies: vec![13],
        };
        let found = |path: &Path| match path.to_str() {
            Some("/home/u/work/inner/home" | "/proc/kcore" | "/proc/sched_debug") => Found::Nothing,
            Some("/proc/sys" | "/proc/scsi") => Found::Folder,
            Some(path) if path.starts_with("/proc/") => Found::File,
            Some(_) | None => Found::Folder,
        };
        let words = arguments(&cage, &descriptors, &found);
        let text: Vec<String> = words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        golden::compare("bubblewrap.txt", &text.join("\n"));
    }
}
