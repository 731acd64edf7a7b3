//! The last look before a program starts: opens its code inside the finished sandbox, compares it
//! with what was decided, and starts what was opened.
//!
//! What only root can change is compared by identity and started by its path: nobody who could
//! swap it is held back by us anyway, and the program finds its own name where it expects it.
//! Everything else is read, and the descriptor that was read is what is executed. A script with a
//! `#!` cannot be: its interpreter opens it again by name. So the interpreter is started the way
//! Linux would start it, and is the program.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use palyra_core::{CodePart, Content, Layer, RunErrorKind, ScriptLine};
use rustix::fs::{Access, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::target::Refusal;
use crate::pins::{self, MOST_BYTES};
use crate::program;
use crate::tier_c::copies::CodeCopy;
use crate::wire::{CodeCheck, Decided, Work};

/// What is started.
pub(super) struct Launch {
    pub(super) what: Opened,
    /// Other words than those of the call: those of a script's interpreter.
    pub(super) words: Option<Vec<String>>,
    /// How the code was compared.
    pub(super) layer: Layer,
}

/// How it is started.
pub(super) enum Opened {
    /// By its path, which only root can change.
    Path(std::path::PathBuf),
    /// By what was opened and read. The path is for messages.
    Descriptor(OwnedFd, std::path::PathBuf),
}

/// One file that was compared.
struct Compared {
    file: OwnedFd,
    /// Its first line, if it was read.
    line: Option<ScriptLine>,
}

/// What an order starts, if it starts anything.
pub(super) fn launch(work: &Work) -> Result<Option<Launch>, Refusal> {
    match work {
        Work::Process {
            argv, cwd, decided, ..
        } => compare(decided, cwd, argv).map(Some),
        Work::File { .. } | Work::Probe => Ok(None),
    }
}

/// How it was compared, if all of it is what was decided.
pub(super) fn layer_of(launch: &Result<Option<Launch>, Refusal>) -> Option<Layer> {
    let launch = launch.as_ref().ok()?.as_ref();
    launch.map(|launch| launch.layer.clone())
}

/// Compares all of a call's code with what was decided.
fn compare(decided: &Decided, cwd: &Path, argv: &[String]) -> Result<Launch, Refusal> {
    let is_chain = |check: &&CodeCheck| match check.part {
        CodePart::Program | CodePart::Interpreter => true,
        CodePart::Operand | CodePart::Later => false,
    };
    let chain: Vec<&CodeCheck> = decided.code.iter().take_while(is_chain).collect();
    let by_path = chain.iter().all(|check| check.fixed);
    // What is started is looked at last.
    for check in decided.code.iter().skip(chain.len()) {
        look(check, check.fixed)?;
    }
    let mut words = None;
    let mut started = None;
    for (at, check) in chain.iter().enumerate() {
        let next = chain.get(at + 1);
        let unread = by_path || (check.fixed && next.is_none());
        let found = look(check, unread)?.ok_or_else(|| gone(check))?;
        if let (Some(next), false) = (next, by_path) {
            let so_far = words.as_deref().unwrap_or(argv);
            words = Some(interpreted(check, &found, next, cwd, so_far)?);
        }
        started = Some((*check, found));
    }
    let Some((last, found)) = started else {
        let message = "the order does not say what the program is";
        return Err(Refusal::new(RunErrorKind::InvalidInput, message));
    };
    let what = match (by_path, last.fixed, chain.first()) {
        (true, _, Some(first)) => Opened::Path(first.path.clone()),
        (_, true, _) => Opened::Path(last.path.clone()),
        (_, false, _) => Opened::Descriptor(found.file, last.path.clone()),
    };
    Ok(Launch {
        what,
        words,
        layer: layer(&decided.code),
    })
}

fn layer(code: &[CodeCheck]) -> Layer {
    let fixed = code.iter().filter(|check| check.fixed).count();
    let copied = code.iter().filter(|check| check.copied).count();
    let observed = format!(
        "{} as decided: {fixed} of root's by identity, {} by content, of these {copied} copied",
        code.len(),
        code.len() - fixed,
    );
    Layer {
        name: "code".to_owned(),
        observed,
    }
}

/// The words that start the interpreter of a script which nobody but us reads the first line of.
fn interpreted(
    script: &CodeCheck,
    found: &Compared,
    interpreter: &CodeCheck,
    cwd: &Path,
    argv: &[String],
) -> Result<Vec<String>, Refusal> {
    // Linux would look; here nothing but its interpreter is executed.
    rustix::fs::access(&script.path, Access::EXEC_OK)
        .map_err(|error| closed(script, &error.into()))?;
    let line = found.line.as_ref().ok_or_else(|| changed(&script.path))?;
    if cwd.join(&line.interpreter) != interpreter.path {
        return Err(changed(&interpreter.path));
    }
    Ok(line.words(&script.path.to_string_lossy(), argv))
}

/// Opens one file and compares it. None when nothing is there, as it was decided.
fn look(check: &CodeCheck, unread: bool) -> Result<Option<Compared>, Refusal> {
    let opened = match unread {
        true => rustix::fs::open(&check.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
        false => pins::open(&check.path),
    };
    let file = match (opened, check.content) {
        (Ok(_), Content::Nothing) => return Err(changed(&check.path)),
        (Ok(file), Content::Sha256(_) | Content::Unread(_)) => file,
        (Err(Errno::NOENT | Errno::NOTDIR), Content::Nothing) => return Ok(None),
        (Err(Errno::NOENT | Errno::NOTDIR), Content::Sha256(_) | Content::Unread(_)) => {
            return Err(gone(check));
        }
        (Err(Errno::MFILE), _) => {
            return Err(Refusal::degraded("a descriptor", Errno::MFILE));
        }
        (Err(error), _) => return Err(closed(check, &error.into())),
    };
    let found = rustix::fs::fstat(&file).map_err(|error| closed(check, &error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(closed(check, &Errno::ACCESS.into()));
    }
    let id = program::id_of_program(&found);
    let same = match check.seen {
        Some(seen) if check.fixed => id == seen,
        // The original was compared when it was copied. The copy is in memory, where the workspace
        // is not: a path that leads back there leads past the copy.
        Some(seen) if check.copied => id.file.device != seen.file.device,
        Some(seen) => id.file == seen.file,
        None => false,
    };
    if !same {
        return Err(changed(&check.path));
    }
    if unread {
        return Ok(Some(Compared { file, line: None }));
    }
    let read = pins::digest_of(&file, MOST_BYTES, |_| Ok(()));
    let read = match read {
        Ok(Some(read)) => read,
        Ok(None) => return Err(changed(&check.path)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Err(changed(&check.path));
        }
        Err(error) => return Err(closed(check, &error)),
    };
    let same = match check.content {
        Content::Sha256(decided) => decided == read.digest,
        Content::Unread(seen) => check.fixed && seen == id,
        Content::Nothing => false,
    };
    match same {
        true => Ok(Some(Compared {
            file,
            line: ScriptLine::of(&read.start),
        })),
        false => Err(changed(&check.path)),
    }
}

/// It is something else by now.
pub(super) fn changed(path: &Path) -> Refusal {
    let message = format!(
        "`{}` is not what was decided about: it was changed or replaced since; look at it, then \
         propose the call again",
        path.display()
    );
    Refusal::new(RunErrorKind::ProgramChanged, message)
}

fn gone(check: &CodeCheck) -> Refusal {
    let kind = RunErrorKind::ProgramNotFound;
    let path = check.path.display();
    let message = match check.part {
        CodePart::Program => format!("cannot execute `{path}`: {}", Errno::NOENT),
        CodePart::Interpreter | CodePart::Operand | CodePart::Later => {
            format!("`{path}` is not there: it is gone, or this tier does not show it")
        }
    };
    Refusal::new(kind, message)
}

fn closed(check: &CodeCheck, error: &io::Error) -> Refusal {
    let path = check.path.display();
    let message = match check.part {
        CodePart::Program => format!("cannot execute `{path}`: {error}"),
        CodePart::Interpreter | CodePart::Operand | CodePart::Later => {
            format!("`{path}` cannot be compared with what was decided: {error}")
        }
    };
    Refusal::new(RunErrorKind::ProgramNotExecutable, message)
}

/// The file that is to be copied, opened by no link.
pub(super) fn original(workspace: &OwnedFd, copy: &CodeCopy) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    beneath(workspace, &copy.at, flags).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN => changed(&copy.at),
        other => {
            let message = format!("`{}` cannot be copied: {other}", copy.at.display());
            Refusal::new(RunErrorKind::ProgramNotExecutable, message)
        }
    })
}

/// Where the copy is put.
pub(super) fn place(workspace: &OwnedFd, copy: &CodeCopy) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(beneath(workspace, &copy.at, flags)?)
}

fn beneath(workspace: &OwnedFd, at: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(workspace, at, flags, Mode::empty(), strict)
}

/// Copies a file, if it is what was decided about; its times and whether it may be executed too.
pub(super) fn copy(original: &OwnedFd, copy: &CodeCopy, to: &OwnedFd) -> Result<(), Refusal> {
    let broke = |error: io::Error| {
        let message = format!("`{}` cannot be copied: {error}", copy.at.display());
        Refusal::new(RunErrorKind::RuntimeFailure, message)
    };
    let read = pins::digest_of(original, copy.size, |piece| write_all(to, piece));
    let read = match read {
        Ok(Some(read)) if read.id.file == copy.id && read.digest == copy.content => read,
        Ok(_) => return Err(changed(&copy.at)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(changed(&copy.at)),
        Err(error) => return Err(broke(error)),
    };
    let settle = || -> rustix::io::Result<()> {
        let mode = rustix::fs::fstat(original)?.st_mode;
        rustix::fs::fchmod(to, Mode::from_raw_mode(0o444 | (mode & 0o111)))?;
        let time = Timespec {
            tv_sec: read.id.modified.0,
            tv_nsec: read.id.modified.1,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(to, &times)
    };
    settle().map_err(|error| broke(error.into()))
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(to, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
