//! File tools, done behind the same walls as a program.
//!
//! Every path is resolved by the kernel beneath a handle of the workspace (`openat2` with
//! `RESOLVE_BENEATH`): absolute paths, `..` and links that lead out are refused by it, also when
//! somebody swaps them while we look. Landlock, which here grants the workspace and nothing else,
//! stands behind that.

use std::collections::BinaryHeap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base64::Engine;
use palyra_core::{FileOperation, RunErrorKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::patch;
use super::target::Refusal;
use super::watch::{self, Watch};
use crate::ground::root::LONGEST_KEY;
use crate::ground::spot::Spot;

/// How often a lookup is tried again when something on its way is being moved.
const TRIES: usize = 64;

/// More links than the kernel would follow.
const MOST_LINKS: usize = 40;

/// A workspace, held by a handle.
pub(super) struct Workspace<'a> {
    folder: OwnedFd,
    /// Where it is.
    real: PathBuf,
    masked: &'a [PathBuf],
    watch: Watch<'a>,
}

impl<'a> Workspace<'a> {
    /// Which folder it is.
    pub(super) fn id(&self) -> Option<palyra_core::FileId> {
        let found = rustix::fs::fstat(&self.folder).ok()?;
        Some(crate::program::id_of(&found))
    }

    pub(super) fn open(
        path: &Path,
        masked: &'a [PathBuf],
        watch: Watch<'a>,
    ) -> Result<Self, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
            let message = format!("cannot enter the workspace `{}`: {error}", path.display());
            Refusal::new(RunErrorKind::InvalidInput, message)
        })?;
        Ok(Self {
            real: real_path(&folder).unwrap_or_else(|| path.to_owned()),
            folder,
            masked,
            watch,
        })
    }

    /// Where beneath the workspace something really is.
    fn spot(&self, handle: impl AsFd) -> Option<Spot> {
        let real = real_path(handle)?;
        Spot::of(real.strip_prefix(&self.real).ok()?)
    }

    /// Does it, and writes the result to standard output as JSON.
    pub(super) fn carry_out(
        &self,
        operation: &FileOperation,
        output_bytes: u64,
    ) -> Result<(), Refusal> {
        let result = match operation {
            FileOperation::Read { path, max_bytes } => {
                self.read(path, (*max_bytes).min(output_bytes))
            }
            FileOperation::List { path, max_entries } => self.list(path, *max_entries),
            FileOperation::Write {
                path,
                content,
                create_parents,
            } => self.write(path, content.as_bytes(), *create_parents),
            FileOperation::ApplyPatch { path, patch } => {
                self.apply_patch(path, patch, output_bytes)
            }
        }?;
        let bytes = serde_json::to_vec(&result).unwrap_or_default();
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(&bytes)
            .and_then(|()| stdout.flush())
            .map_err(|error| Refusal::new(RunErrorKind::RuntimeFailure, error.to_string()))
    }

    fn read(&self, path: &Path, max_bytes: u64) -> Result<Value, Refusal> {
        let (file, found) = self.open_file(path)?;
        let at = self.spot(&file).or_else(|| watch::as_given(path));
        let at = at.unwrap_or_default();
        let mut file = std::fs::File::from(file);
        self.may_read(&at, &mut file)
            .map_err(|error| self.refusal(path, error))??;
        let mut bytes = Vec::new();
        // One byte more than asked for shows whether there is more.
        file.take(max_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| {
                self.refusal(path, Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
        let truncated = bytes.len() as u64 > max_bytes;
        bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        let mut result = content(bytes, truncated);
        if let Value::Object(fields) = &mut result {
            fields.insert("size".to_owned(), json!(found.st_size));
            fields.insert("truncated".to_owned(), json!(truncated));
        }
        Ok(result)
    }

    /// Whether a file may be read. For some names all of it tells, however little was asked for.
    fn may_read(&self, at: &Spot, file: &mut std::fs::File) -> Result<Result<(), Refusal>, Errno> {
        let mut content = Vec::new();
        if self.watch.needs_content(at) {
            Read::by_ref(file)
                .take(LONGEST_KEY)
                .read_to_end(&mut content)
                .and_then(|_| file.rewind())
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(self.watch.reading(at, &content))
    }

    fn list(&self, path: &Path, max_entries: u64) -> Result<Value, Refusal> {
        let refused = |error| self.refusal(path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let folder = self.resolve(path, flags, Mode::empty()).map_err(refused)?;
        let most = usize::try_from(max_entries).unwrap_or(usize::MAX);
        // The first names in order, however many there are: a heap of the smallest so far.
        let mut names: BinaryHeap<CString> = BinaryHeap::new();
        let mut truncated = false;
        for entry in rustix::fs::Dir::read_from(&folder).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            names.push(name.to_owned());
            if names.len() > most {
                names.pop();
                truncated = true;
            }
        }
        let entries: Vec<Value> = names
            .into_sorted_vec()
            .iter()
            .map(|name| describe(&folder, name))
            .collect();
        Ok(json!({ "entries": entries, "truncated": truncated }))
    }

    fn write(&self, path: &Path, bytes: &[u8], make_parents: bool) -> Result<Value, Refusal> {
        let place = self.place(path, make_parents)?;
        let created = self.replace(path, &place, bytes)?;
        Ok(json!({ "bytes": bytes.len(), "created": created }))
    }

    fn apply_patch(&self, path: &Path, diff: &str, max_bytes: u64) -> Result<Value, Refusal> {
        let place = self.place(path, false)?;
        let base = match &place.existing {
            None => None,
            Some(_) => {
                let (file, _) = self.open_file(path)?;
                let mut bytes = Vec::new();
                // One byte more than allowed shows that there is more. Memory is not to be used up
                // by the size of a file.
                std::fs::File::from(file)
                    .take(max_bytes.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(|error| {
                        self.refusal(path, Errno::from_io_error(&error).unwrap_or(Errno::IO))
                    })?;
                if bytes.len() as u64 > max_bytes {
                    let what = format!("is too large to patch: more than {max_bytes} bytes");
                    return Err(not_a_file(path, &what));
                }
                Some(bytes)
            }
        };
        let (patched, hunks) = patch::apply(path, base.as_deref(), diff)?;
        let created = self.replace(path, &place, &patched)?;
        Ok(json!({ "hunks": hunks, "bytes": patched.len(), "created": created }))
    }

    /// Opens a regular file for reading. A FIFO would block for ever and a device has effects of
    /// its own, so both are opened without waiting and sent away.
    fn open_file(&self, path: &Path) -> Result<(OwnedFd, Stat), Refusal> {
        let refused = |error| self.refusal(path, error);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.resolve(path, flags, Mode::empty()).map_err(refused)?;
        let found = rustix::fs::fstat(&file).map_err(refused)?;
        regular(path, &found)?;
        Ok((file, found))
    }

    /// Opens beneath the workspace.
    fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut last = Errno::AGAIN;
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.folder, path, flags | OFlags::CLOEXEC, mode, how) {
                // Something was renamed meanwhile, so the kernel cannot vouch for "beneath".
                Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
                other => return other,
            }
        }
        Err(last)
    }

    /// Where a file is to be put: its folder and its name there, links resolved.
    fn place(&self, path: &Path, make_parents: bool) -> Result<Place, Refusal> {
        // Before any folder is made on the way to it, and again where it really is.
        if let Some(at) = watch::as_given(path) {
            self.watch.writing(&at)?;
        }
        let place = self.find_place(path, make_parents)?;
        match self.spot(&place.parent) {
            Some(parent) => self.watch.writing(&parent.join(place.name.as_bytes()))?,
            None => return Err(self.refusal(path, Errno::XDEV)),
        }
        Ok(place)
    }

    fn find_place(&self, path: &Path, make_parents: bool) -> Result<Place, Refusal> {
        let refused = |error| self.refusal(path, error);
        let mut todo = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = match todo.components().next_back() {
                Some(Component::Normal(name)) => name.to_owned(),
                _ => return Err(not_a_file(path, "is a folder")),
            };
            let parent_path = todo.parent().unwrap_or_else(|| Path::new(""));
            let parent = self.parent(parent_path, make_parents).map_err(refused)?;
            let found = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW);
            match found {
                Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                    let target =
                        rustix::fs::readlinkat(&parent, &name, Vec::new()).map_err(refused)?;
                    // Joined to the folder as it was written, so that the kernel resolves the
                    // whole of it again, beneath the workspace. An absolute target leads out.
                    let target =
                        PathBuf::from(OsString::from(OsStr::from_bytes(target.as_bytes())));
                    if target.is_absolute() {
                        return Err(refused(Errno::XDEV));
                    }
                    todo = parent_path.join(target);
                }
                Ok(found) => {
                    regular(path, &found)?;
                    return Ok(Place {
                        parent,
                        name,
                        existing: Some(found),
                    });
                }
                Err(Errno::NOENT) => {
                    return Ok(Place {
                        parent,
                        name,
                        existing: None,
                    });
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(Errno::LOOP))
    }

    fn parent(&self, path: &Path, make: bool) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.resolve(path, flags, Mode::empty()) {
            Err(Errno::NOENT) if make => {}
            other => return other,
        }
        let mut so_far = PathBuf::new();
        let mut here = self.resolve(Path::new("."), flags, Mode::empty())?;
        for part in path.components() {
            so_far.push(part);
            here = match self.resolve(&so_far, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(0o777);
                    match rustix::fs::mkdirat(&here, part.as_os_str(), mode) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    self.resolve(&so_far, flags, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok(here)
    }

    /// Puts `bytes` there in one step: a new file beside it, flushed, takes its name. Whoever reads
    /// meanwhile sees the old content or the new. True when there was no file before.
    fn replace(&self, path: &Path, place: &Place, bytes: &[u8]) -> Result<bool, Refusal> {
        let refused = |error: io::Error| {
            self.refusal(path, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| refused(error.into()))?;
        let temporary = format!(".palyra-{:016x}.tmp", u64::from_ne_bytes(random));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place.parent, &temporary, flags, Mode::from_raw_mode(0o666))
            .map_err(|error| refused(error.into()))?;
        let put = place.fill(file, bytes).and_then(|()| {
            rustix::fs::renameat(&place.parent, &temporary, &place.parent, &place.name)?;
            Ok(())
        });
        if let Err(error) = put {
            let _ = rustix::fs::unlinkat(&place.parent, &temporary, AtFlags::empty());
            return Err(refused(error));
        }
        // The name is durable once its folder is.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(folder) = rustix::fs::openat(&place.parent, ".", flags, Mode::empty()) {
            let _ = rustix::fs::fsync(folder);
        }
        Ok(place.existing.is_none())
    }

    /// A kernel's error in the words of the tool.
    fn refusal(&self, path: &Path, error: Errno) -> Refusal {
        let shown = path.display();
        // What the mounts of a cage answer.
        if let Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY = error
            && let Some(why) = self.nearest(path).and_then(|at| self.watch.why(&at))
        {
            return why;
        }
        let (kind, message) = match error {
            Errno::XDEV => (
                RunErrorKind::WorkspaceScopeDenied,
                format!("`{shown}` leads out of the workspace"),
            ),
            Errno::ACCESS | Errno::PERM if self.is_masked(path) => (
                RunErrorKind::WorkspaceScopeDenied,
                format!("`{shown}` is the daemon's home, inside it, or on the way to it"),
            ),
            Errno::NOENT => (
                RunErrorKind::InvalidInput,
                format!("`{shown}` does not exist"),
            ),
            Errno::NOTDIR => (
                RunErrorKind::InvalidInput,
                format!("`{shown}` is not a folder, or something on its way is not"),
            ),
            Errno::LOOP => (
                RunErrorKind::InvalidInput,
                format!("`{shown}` goes through too many links, or a link of the system"),
            ),
            Errno::ISDIR => return not_a_file(path, "is a folder"),
            // What opening a FIFO for writing, or a socket, gives.
            Errno::NXIO => return not_a_file(path, "is not a regular file"),
            Errno::INVAL | Errno::NAMETOOLONG => (
                RunErrorKind::InvalidInput,
                format!("`{shown}` is not a usable path"),
            ),
            other => (
                RunErrorKind::RuntimeFailure,
                format!("`{shown}`: {}", io::Error::from(other)),
            ),
        };
        Refusal::new(kind, message)
    }

    /// Where a path that was refused leads, or the last folder on the way that is there.
    fn nearest(&self, path: &Path) -> Option<Spot> {
        let mut there = path.ancestors();
        there.find_map(|path| {
            let handle = self.resolve(path, OFlags::PATH, Mode::empty()).ok()?;
            self.spot(&handle)
        })
    }

    /// Whether a path that was refused leads to, into, or towards a masked folder. A handle without
    /// rights can be had of anything, so where it leads can still be said.
    fn is_masked(&self, path: &Path) -> bool {
        let mut here = Some(path);
        while let Some(path) = here {
            if let Ok(handle) = self.resolve(path, OFlags::PATH, Mode::empty()) {
                let Some(real) = real_path(&handle) else {
                    return false;
                };
                let touches = |mask: &PathBuf| real.starts_with(mask) || mask.starts_with(&real);
                return self.masked.iter().any(touches);
            }
            here = path.parent();
        }
        false
    }
}

/// Where a file is to be put.
struct Place {
    parent: OwnedFd,
    name: OsString,
    existing: Option<Stat>,
}

impl Place {
    fn fill(&self, file: OwnedFd, bytes: &[u8]) -> io::Result<()> {
        if let Some(existing) = &self.existing {
            // As root, the file stays whose it was; anybody else owns what they write.
            if rustix::process::geteuid().is_root() {
                let uid = rustix::fs::Uid::from_raw(existing.st_uid);
                let gid = rustix::fs::Gid::from_raw(existing.st_gid);
                rustix::fs::fchown(&file, Some(uid), Some(gid))?;
            }
            // Not the set-id bits: they vouched for another content.
            let mode = Mode::from_raw_mode(existing.st_mode & 0o777);
            rustix::fs::fchmod(&file, mode)?;
        }
        let mut file = std::fs::File::from(file);
        file.write_all(bytes)?;
        file.sync_all()
    }
}

fn real_path(handle: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    std::fs::read_link(link).ok()
}

fn not_a_file(path: &Path, what: &str) -> Refusal {
    let message = format!("`{}` {what}", path.display());
    Refusal::new(RunErrorKind::InvalidInput, message)
}

fn regular(path: &Path, found: &Stat) -> Result<(), Refusal> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(not_a_file(path, "is a folder")),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(not_a_file(path, "is not a regular file")),
    }
}

/// Text when it is text, base64 otherwise. A character that the cap cut in two is dropped.
fn content(bytes: Vec<u8>, cut: bool) -> Value {
    match crate::output::text(bytes, cut) {
        Ok(text) => json!({ "bytes": text.len(), "text": text }),
        Err(bytes) => {
            let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
            json!({ "bytes": bytes.len(), "base64": encoded })
        }
    }
}

fn describe(folder: &OwnedFd, name: &CString) -> Value {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let kind = found.as_ref().map_or("unknown", |found| {
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "folder",
            FileType::Symlink => "link",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::Unknown => "unknown",
        }
    });
    let mut entry = json!({ "name": name.to_string_lossy(), "kind": kind });
    if let Value::Object(fields) = &mut entry {
        if name.to_str().is_err() {
            let exact = base64::engine::general_purpose::STANDARD.encode(name.as_bytes());
            fields.insert("name_base64".to_owned(), json!(exact));
        }
        if let Some(found) = found.filter(|_| kind == "file") {
            fields.insert("size".to_owned(), json!(found.st_size));
        }
    }
    entry
}
