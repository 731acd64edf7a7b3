//! What nobody but root can change: a file of the system, and the way to it.

use std::io;
use std::path::{Component, Path, PathBuf};

use palyra_core::plan::ProgramId;
use rustix::fs::{AtFlags, CWD, FileType, Stat};

use crate::program;
use crate::tier_c::cage::is_the_systems;

/// Links on the way to one file, as in Linux.
const MOST_LINKS: usize = 40;

/// Walks a path as the kernel would and gives the file at its end, if it is the system's and nobody
/// but root can change that file, a folder or link on the way, or what any of them is called.
pub(crate) fn is_roots_alone(path: &Path) -> io::Result<ProgramId> {
    let not = || io::Error::from(io::ErrorKind::PermissionDenied);
    let mut here = PathBuf::from("/");
    let mut rest = parts(path);
    let mut device = None;
    let mut links = 0;
    loop {
        let found = rustix::fs::statat(CWD, &here, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        // What root owns elsewhere may be somebody's workspace, where calls of a root daemon write
        // as root does.
        if kind != FileType::Directory && !is_the_systems(&here) {
            return Err(not());
        }
        if kind == FileType::Symlink {
            links += 1;
            if links > MOST_LINKS {
                return Err(not());
            }
            let target = std::fs::read_link(&here)?;
            here.pop();
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            rest.extend(parts(&target));
        } else if found.st_uid != 0 || found.st_mode & 0o022 != 0 {
            return Err(not());
        }
        // Elsewhere "root" is what somebody else says.
        if device.replace(found.st_dev) != Some(found.st_dev) && !is_of_this_machine(&here, &found)?
        {
            return Err(not());
        }
        match (rest.pop(), kind) {
            (Some(part), FileType::Directory | FileType::Symlink) => {
                if part == Path::new("..") {
                    here.pop();
                } else {
                    here.push(part);
                }
            }
            (None, FileType::RegularFile) => return Ok(program::id_of_program(&found)),
            (Some(_) | None, _) => return Err(not()),
        }
    }
}

/// Whether this kernel itself keeps the owners of the files there: no user's file system, nobody
/// else's machine.
fn is_of_this_machine(path: &Path, found: &Stat) -> io::Result<bool> {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const OVERLAY: u64 = 0x794c_7630;
    const SQUASHFS: u64 = 0x7371_7368;
    const EROFS: u64 = 0xe0f5_e1e2;
    const F2FS: u64 = 0xf2f5_2010;
    const ZFS: u64 = 0x2fc1_2fc1;
    const BCACHEFS: u64 = 0xca45_1a4e;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        // What it is on is that of the folder it is in.
        return Ok(true);
    }
    let kind = rustix::fs::statfs(path)?.f_type;
    // The kernel's number has 32 bits; here and there it comes with a sign.
    let kind = u64::from_ne_bytes(kind.to_ne_bytes()) & 0xffff_ffff;
    Ok([
        EXT, XFS, BTRFS, TMPFS, RAMFS, OVERLAY, SQUASHFS, EROFS, F2FS, ZFS, BCACHEFS,
    ]
    .contains(&kind))
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<PathBuf> = named.collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_is_the_systems_all_the_way_is_roots_alone() {
        let shell = program::program_id(Path::new("/bin/sh")).unwrap();
        for path in ["/bin/sh", "/usr/bin/../bin/sh", "/bin/./sh"] {
            assert_eq!(is_roots_alone(Path::new(path)).unwrap(), shell, "{path}");
        }
        // It leads there too, and somebody else can lead it elsewhere.
        let here = tempfile::tempdir().unwrap();
        let link = here.path().join("sh");
        symlink("/bin/sh", &link).unwrap();
        assert!(is_roots_alone(&link).is_err());
        // What the kernel makes up is nobody's file.
        for other in [
            "/bin",
            "/dev/null",
            "/proc/self/exe",
            "/bin/no-such-program",
        ] {
            assert!(is_roots_alone(Path::new(other)).is_err(), "{other}");
        }
    }
}
