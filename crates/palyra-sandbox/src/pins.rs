//! Reads a call's code before it is decided: which files run, and what is in them.
//!
//! A file that only root can change, reached by a path that only root can change, is read once and
//! known again by device, inode, size and times. Every other file is read each time: its owner can
//! write to it without its times telling (a mapping that was dirtied before stays silent).

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use palyra_core::plan::ProgramId;
use palyra_core::{CodePart, Content, Digest, Hashing, Pinned, ScriptLine};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::program;
use crate::roots::is_roots_alone;

/// More than this is not read for one call.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// Scripts that name scripts as their interpreters, as in Linux.
const DEEPEST: usize = 5;

/// Known files of root's; all are forgotten when there are more.
const MOST_KNOWN: usize = 4_096;

/// What is read at once.
const AT_ONCE: usize = 64 * 1024;

/// The code of a call, as far as its words tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeWanted {
    /// What is started.
    pub program: PathBuf,
    /// Which file it was when it was judged.
    pub program_id: ProgramId,
    /// What the program is given to run, by absolute paths.
    pub more: Vec<MoreCode>,
    /// Where it starts: an interpreter may be named from there.
    pub cwd: PathBuf,
    /// Folders that the call never sees: nothing in them is read.
    pub masked: Vec<PathBuf>,
}

/// Something else that a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoreCode {
    /// Where it is looked for.
    pub path: PathBuf,
    /// What it has to do with the call.
    pub part: CodePart,
}

/// Why a call's code cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinProblem {
    /// It changed while it was read.
    #[error("`{0}` changed while it was read")]
    Changed(PathBuf),
    /// There is too much of it.
    #[error("`{0}` is too large: {MOST_BYTES} bytes of code are read for one call at most")]
    TooLarge(PathBuf),
    /// What is in it cannot be told.
    #[error("`{0}` cannot be read, so nobody can tell what would run: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// Its interpreter is not there, or is none.
    #[error("the interpreter `{1}` that `{0}` names cannot be executed")]
    NoInterpreter(PathBuf, String),
}

/// Reads all of a call's code, whatever was read before.
///
/// # Errors
/// What would run cannot be told.
pub fn read_code(wanted: &CodeWanted) -> Result<Vec<Pinned>, PinProblem> {
    Pins::default().read(wanted)
}

/// What is known of files that only root can change.
#[derive(Default)]
pub(crate) struct Pins(Mutex<HashMap<ProgramId, Known>>);

#[derive(Debug, Clone)]
struct Known {
    content: Content,
    line: Option<ScriptLine>,
}

/// Why there is no answer yet.
enum Stop {
    /// Something has to be read, and this is not the place for it.
    WouldRead,
    Problem(PinProblem),
}

impl From<PinProblem> for Stop {
    fn from(problem: PinProblem) -> Self {
        Self::Problem(problem)
    }
}

impl Pins {
    /// The answer, if nothing has to be read for it.
    pub(crate) fn known(&self, wanted: &CodeWanted) -> Option<Result<Vec<Pinned>, PinProblem>> {
        match self.pin(wanted, &mut Budget { left: None }) {
            Ok(code) => Some(Ok(code)),
            Err(Stop::Problem(problem)) => Some(Err(problem)),
            Err(Stop::WouldRead) => None,
        }
    }

    /// The answer, however long reading takes.
    pub(crate) fn read(&self, wanted: &CodeWanted) -> Result<Vec<Pinned>, PinProblem> {
        let mut budget = Budget {
            left: Some(MOST_BYTES),
        };
        self.pin(wanted, &mut budget).map_err(|stop| match stop {
            Stop::Problem(problem) => problem,
            // There is a budget, so it reads.
            Stop::WouldRead => PinProblem::Changed(wanted.program.clone()),
        })
    }

    fn pin(&self, wanted: &CodeWanted, budget: &mut Budget) -> Result<Vec<Pinned>, Stop> {
        let mut code = Vec::new();
        let mut part = CodePart::Program;
        let mut path = wanted.program.clone();
        loop {
            let (pinned, line) = self.file(&path, part, budget)?;
            let Some(seen) = pinned.seen else {
                let missing = match part {
                    CodePart::Program => PinProblem::Changed(path),
                    CodePart::Interpreter | CodePart::Operand | CodePart::Later => {
                        let name = path.display().to_string();
                        PinProblem::NoInterpreter(wanted.program.clone(), name)
                    }
                };
                return Err(missing.into());
            };
            if part == CodePart::Program && seen != wanted.program_id {
                return Err(PinProblem::Changed(path).into());
            }
            code.push(pinned);
            let Some(line) = line else { break };
            if code.len() > DEEPEST {
                let named = line.interpreter;
                return Err(PinProblem::NoInterpreter(wanted.program.clone(), named).into());
            }
            path = wanted.cwd.join(&line.interpreter);
            part = CodePart::Interpreter;
        }
        for more in &wanted.more {
            let is_masked = |path: &Path| wanted.masked.iter().any(|mask| path.starts_with(mask));
            let known = code.iter().any(|it| it.path == more.path);
            if known || is_masked(&more.path) {
                continue;
            }
            // Where it leads is looked at first: nothing of the daemon's own is ever read.
            if more.path.canonicalize().is_ok_and(|real| is_masked(&real)) {
                continue;
            }
            match self.file(&more.path, more.part, budget) {
                Ok((pinned, _)) => code.push(pinned),
                // What is no file cannot be changed for another one: a terminal, a pipe, a folder.
                Err(Stop::Problem(PinProblem::Unreadable(_, error)))
                    if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(code)
    }

    /// Looks at one file.
    fn file(
        &self,
        path: &Path,
        part: CodePart,
        budget: &mut Budget,
    ) -> Result<(Pinned, Option<ScriptLine>), Stop> {
        let unreadable = |error: io::Error| PinProblem::Unreadable(path.to_owned(), error);
        let pinned = |real: PathBuf, content, seen, fixed| Pinned {
            path: path.to_owned(),
            real,
            part,
            content,
            seen,
            fixed,
        };
        let found = match rustix::fs::stat(path) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                return Ok((pinned(path.to_owned(), Content::Nothing, None, false), None));
            }
            Err(error) => return Err(unreadable(error.into()).into()),
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(unreadable(io::ErrorKind::InvalidInput.into()).into());
        }
        let id = program::id_of_program(&found);
        let fixed = is_roots_alone(path).is_ok_and(|end| end == id);
        if fixed && let Some(known) = self.lock().get(&id).cloned() {
            let real = path.canonicalize().map_err(unreadable)?;
            return Ok((pinned(real, known.content, Some(id), true), known.line));
        }
        if budget.left.is_none() {
            return Err(Stop::WouldRead);
        }
        let file = match open(path) {
            Ok(file) => file,
            // Nobody but root can change it; and whoever may not read it cannot be told more.
            Err(Errno::ACCESS | Errno::PERM) if fixed => {
                let real = path.canonicalize().map_err(unreadable)?;
                return Ok((pinned(real, Content::Unread(id), Some(id), true), None));
            }
            Err(error) => return Err(unreadable(error.into()).into()),
        };
        let read = read(&file, path, budget)?;
        if read.id != id {
            return Err(PinProblem::Changed(path.to_owned()).into());
        }
        let content = Content::Sha256(read.digest);
        let line = ScriptLine::of(&read.start);
        if fixed {
            let known = Known {
                content,
                line: line.clone(),
            };
            self.remember(id, known);
        }
        let real = path_of(&file).map_err(unreadable)?;
        Ok((pinned(real, content, Some(id), fixed), line))
    }

    fn remember(&self, id: ProgramId, known: Known) {
        let mut all = self.lock();
        if all.len() >= MOST_KNOWN {
            all.clear();
        }
        all.insert(id, known);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgramId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much may still be read; none when nothing may.
struct Budget {
    left: Option<u64>,
}

/// What was read of a file.
pub(crate) struct Content256 {
    pub(crate) id: ProgramId,
    pub(crate) digest: Digest,
    /// As much as says whether it is a script.
    pub(crate) start: Vec<u8>,
}

fn read(file: &OwnedFd, path: &Path, budget: &mut Budget) -> Result<Content256, PinProblem> {
    let left = budget.left.unwrap_or(0);
    match digest_of(file, left, |_| Ok(())) {
        Ok(Some(read)) => {
            budget.left = Some(left.saturating_sub(read.id.size));
            Ok(read)
        }
        Ok(None) => Err(PinProblem::TooLarge(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Err(PinProblem::Changed(path.to_owned()))
        }
        Err(error) => Err(PinProblem::Unreadable(path.to_owned(), error)),
    }
}

/// Opens a file to read it, whatever it turns out to be.
pub(crate) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    // A pipe does not hold us up, and a terminal does not become ours.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Reads an open file to its end and hands each piece on. None when it is longer than `most`;
/// `Interrupted` when it changed meanwhile.
pub(crate) fn digest_of(
    file: &OwnedFd,
    most: u64,
    mut piece: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Option<Content256>> {
    let before = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let id = program::id_of_program(&before);
    if id.size > most {
        return Ok(None);
    }
    let mut hash = Hashing::default();
    let mut start = Vec::with_capacity(ScriptLine::LONGEST);
    let mut bytes = vec![0; AT_ONCE];
    let (mut length, mut reading) = (0_u64, std::fs::File::from(file.try_clone()?));
    loop {
        let read = match reading.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let read = bytes.get(..read).unwrap_or_default();
        length += read.len() as u64;
        if length > most {
            return Ok(None);
        }
        let missing = ScriptLine::LONGEST - start.len();
        start.extend(read.iter().take(missing));
        hash.update(read);
        piece(read)?;
    }
    let after = program::id_of_program(&rustix::fs::fstat(file)?);
    if length != id.size || after.size != id.size || after.modified != id.modified {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(Some(Content256 {
        id,
        digest: hash.finish(),
        start,
    }))
}

/// Where an open file is.
fn path_of(file: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn wanted(program: &Path) -> CodeWanted {
        CodeWanted {
            program: program.to_owned(),
            program_id: program::program_id(program).unwrap(),
            more: Vec::new(),
            cwd: "/".into(),
            masked: Vec::new(),
        }
    }

    fn script(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_only_root_can_change_is_read_once() {
        let pins = Pins::default();
        let sh = wanted(Path::new("/bin/sh"));
        assert!(pins.known(&sh).is_none(), "nothing was read yet");
        let code = pins.read(&sh).unwrap();
        assert_eq!(code.len(), 1);
        assert!(code[0].fixed, "{code:?}");
        let bytes = std::fs::read("/bin/sh").unwrap();
        assert_eq!(code[0].content, Content::Sha256(Digest::of(&bytes)));
        assert_eq!(pins.known(&sh).unwrap().unwrap(), code);
    }

    #[test]
    fn what_others_can_change_is_read_each_time() {
        let here = tempfile::tempdir().unwrap();
        let pins = Pins::default();
        // Root's own file, in a folder that everybody may write to on the way.
        let file = here.path().join("tool");
        script(&file, "x");
        let link = here.path().join("sh");
        symlink("/bin/sh", &link).unwrap();
        for path in [&file, &link] {
            let wanted = wanted(path);
            let code = pins.read(&wanted).unwrap();
            assert!(!code[0].fixed, "{code:?}");
            assert!(pins.known(&wanted).is_none());
        }
    }

    #[test]
    fn a_script_brings_its_interpreters() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        let (inner, outer) = (here.join("inner"), here.join("outer"));
        script(&inner, "#!/bin/sh -e\n");
        script(&outer, &format!("#!{}\n", inner.display()));
        let code = Pins::default().read(&wanted(&outer)).unwrap();
        let parts: Vec<_> = code.iter().map(|it| (it.path.clone(), it.part)).collect();
        assert_eq!(
            parts,
            [
                (outer.clone(), CodePart::Program),
                (inner, CodePart::Interpreter),
                ("/bin/sh".into(), CodePart::Interpreter),
            ]
        );
        script(&outer, "#!/no/such/interpreter\n");
        let refused = Pins::default().read(&wanted(&outer));
        assert!(matches!(refused, Err(PinProblem::NoInterpreter(..))));
        let around = format!("#!{}\n", outer.display());
        script(&outer, &around);
        let refused = Pins::default().read(&wanted(&outer));
        assert!(matches!(refused, Err(PinProblem::NoInterpreter(..))));
    }

    #[test]
    fn what_is_not_there_yet_is_noted_and_what_is_hidden_is_not_read() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        let more = |path: PathBuf| MoreCode {
            path,
            part: CodePart::Operand,
        };
        std::fs::create_dir(here.join("hidden")).unwrap();
        std::fs::write(here.join("hidden/x"), "x").unwrap();
        symlink(here.join("hidden/x"), here.join("link")).unwrap();
        let wanted = CodeWanted {
            more: ["later", "hidden/x", "link", "hidden"]
                .map(|name| more(here.join(name)))
                .to_vec(),
            masked: vec![here.join("hidden")],
            ..wanted(Path::new("/bin/sh"))
        };
        let code = Pins::default().read(&wanted).unwrap();
        assert_eq!(code.len(), 2, "{code:?}");
        assert_eq!(code[1].content, Content::Nothing);
    }

    #[test]
    fn too_much_is_not_read() {
        let here = tempfile::tempdir().unwrap();
        let large = here.path().join("large");
        script(&large, "x");
        let file = std::fs::OpenOptions::new().write(true).open(&large);
        file.unwrap().set_len(MOST_BYTES + 1).unwrap();
        let refused = Pins::default().read(&wanted(&large));
        assert!(matches!(refused, Err(PinProblem::TooLarge(_))));
    }
}
