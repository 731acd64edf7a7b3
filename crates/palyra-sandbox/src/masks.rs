//! Masked folders as they really are: where a path leads, by which links, and where else the same
//! files show up.
//!
//! Hiding `/home/u/.palyra` alone is not enough if it is a symlink (whoever may replace the link
//! chooses the daemon's next home), or if the same file system is mounted a second time (ostree,
//! bind mounts): Landlock looks at the path by which a file was reached.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// More links than the kernel would follow.
const MOST_LINKS: usize = 40;

/// Masked folders, found out.
pub(crate) struct Places {
    /// Every place that has to stay hidden, in canonical spelling.
    pub(crate) all: BTreeSet<PathBuf>,
    /// Where the folders themselves are.
    pub(crate) real: Vec<PathBuf>,
}

impl Places {
    /// Finds out where `masked` leads.
    pub(crate) fn of(masked: &BTreeSet<PathBuf>, mounts: &[Mount]) -> io::Result<Self> {
        let mut places = Self {
            all: BTreeSet::new(),
            real: Vec::new(),
        };
        for path in masked {
            let (real, links) = follow(path)?;
            places.all.extend(aliases(&real, mounts));
            places.all.extend(links);
            places.all.insert(real.clone());
            places.real.push(real);
        }
        Ok(places)
    }

    /// Whether a handle of `path` may be kept open. It keeps its mount busy, so only on mounts that
    /// nobody wants to unmount while the daemon runs: the root, the kernel's own, and those with
    /// the daemon's home on them.
    pub(crate) fn may_pin(&self, path: &Path, mounts: &[Mount]) -> bool {
        mount_of(path, mounts).is_none_or(|mount| {
            mount.point == Path::new("/")
                || ["proc", "sysfs", "devtmpfs"].contains(&mount.kind.as_str())
                || self.real.iter().any(|real| {
                    mount_of(real, mounts).is_some_and(|home| home.point == mount.point)
                })
        })
    }
}

/// The mount that a path lookup ends on: the last one on the longest point.
fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// Where `path` leads, and the links on the way. What does not exist (yet) is taken as it is
/// written: its place is protected all the same.
fn follow(path: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let mut todo: Vec<OsString> = names(path).rev().collect();
    let (mut real, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(name) = todo.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        match std::fs::read_link(&next) {
            Ok(target) => {
                if links.len() >= MOST_LINKS {
                    return Err(io::Error::other(format!(
                        "`{}` goes through too many links",
                        path.display()
                    )));
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                todo.extend(names(&target).rev());
                links.push(next);
            }
            Err(_) => real = next,
        }
    }
    Ok((real, links))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    device: String,
    /// Which part of the file system is mounted.
    root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
    /// The file system's type.
    pub(crate) kind: String,
}

impl Mount {
    /// Reads the table. Lines that make no sense are left out.
    pub(crate) fn parse_all(table: &[u8]) -> Vec<Self> {
        table
            .split(|byte| *byte == b'\n')
            .filter_map(Self::parse)
            .collect()
    }

    /// `36 35 98:0 /root /point options… - type source superoptions`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Self {
            device,
            root,
            point,
            kind: String::from_utf8(kind.to_vec()).ok()?,
        })
    }
}

/// Blanks and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'\\'
            && let Some((digits, after)) = after.split_at_checked(3)
            && let Some(byte) = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            bytes.push(byte);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    OsString::from_vec(bytes).into()
}

/// The other paths under which what is at `real`, or a part of it, is mounted.
fn aliases(real: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(own) = mount_of(real, mounts) else {
        return Vec::new();
    };
    let Ok(beneath) = real.strip_prefix(&own.point) else {
        return Vec::new();
    };
    let inside = own.root.join(beneath);
    mounts
        .iter()
        .filter(|mount| mount.device == own.device)
        .filter_map(|mount| {
            if let Ok(beneath) = inside.strip_prefix(&mount.root) {
                Some(mount.point.join(beneath))
            } else {
                mount.root.starts_with(&inside).then(|| mount.point.clone())
            }
        })
        .filter(|path| path != real)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &str) -> Vec<Mount> {
        Mount::parse_all(lines.as_bytes())
    }

    #[test]
    fn links_are_followed_and_remembered() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().canonicalize().unwrap();
        std::fs::create_dir_all(here.join("data/home")).unwrap();
        std::os::unix::fs::symlink("data", here.join("one")).unwrap();
        std::os::unix::fs::symlink(here.join("one/home"), here.join("two")).unwrap();

        let (real, links) = follow(&here.join("two/../home")).unwrap();
        assert_eq!(real, here.join("data/home"));
        assert_eq!(links, [here.join("two"), here.join("one")]);

        let (real, links) = follow(&here.join("one/not/there")).unwrap();
        assert_eq!(real, here.join("data/not/there"));
        assert_eq!(links, [here.join("one")]);
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let here = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("round", here.path().join("round")).unwrap();
        assert!(follow(&here.path().join("round")).is_err());
    }

    #[test]
    fn the_same_files_elsewhere_are_found() {
        let mounts = table(
            "22 1 8:1 / / rw - ext4 /dev/a rw\n\
             23 22 8:1 / /sysroot rw - ext4 /dev/a rw\n\
             24 22 8:1 /home/u/.palyra/blobs /srv/with\\040blank rw - ext4 /dev/a rw\n\
             25 22 8:1 /usr /other rw - ext4 /dev/a rw\n\
             26 22 0:5 / /proc rw - proc proc rw\n",
        );
        assert_eq!(mounts.len(), 5);
        assert_eq!(
            aliases(Path::new("/home/u/.palyra"), &mounts),
            [
                PathBuf::from("/sysroot/home/u/.palyra"),
                PathBuf::from("/srv/with blank")
            ]
        );
    }

    #[test]
    fn a_subvolume_is_seen_through_its_own_mount() {
        let mounts = table(
            "22 1 0:30 /@ / rw - btrfs /dev/a rw\n\
             23 22 0:30 /@home /home rw - btrfs /dev/a rw\n\
             24 22 0:30 / /mnt/top rw - btrfs /dev/a rw\n",
        );
        assert_eq!(
            aliases(Path::new("/home/u/p"), &mounts),
            [PathBuf::from("/mnt/top/@home/u/p")]
        );
    }
}
