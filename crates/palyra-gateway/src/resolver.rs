//! What effects are told about the machine's files.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use palyra_effects::Resolver;

/// The longest `#!` line that Linux takes.
const LONGEST_LINE: u64 = 256;
/// Links on the way to one file, as in Linux.
const MOST_LINKS: usize = 40;

/// The files of this machine.
pub(crate) struct Files;

impl Resolver for Files {
    fn program(&self, name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
        let found = palyra_sandbox::resolve_program(name, path, cwd).ok()?;
        let folder = found.parent()?.canonicalize().ok()?;
        Some(folder.join(found.file_name()?))
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        if path.as_os_str().as_encoded_bytes().contains(&0) || !path.is_absolute() {
            return None;
        }
        // The usual case is one call of the kernel's.
        if let Ok(real) = path.canonicalize() {
            return Some(real);
        }
        beneath_real_ancestor(path)
    }

    fn interpreter(&self, program: &Path) -> Option<String> {
        let file = std::fs::File::open(program).ok()?;
        let mut start = Vec::new();
        file.take(LONGEST_LINE).read_to_end(&mut start).ok()?;
        let line = start
            .strip_prefix(b"#!")?
            .split(|byte| *byte == b'\n')
            .next()?;
        Some(String::from_utf8_lossy(line).trim().to_owned())
    }
}

/// Walks the path as the kernel would, and goes on by name where nothing is yet. A link that leads
/// to nothing is followed all the same: writing through it makes its target.
fn beneath_real_ancestor(path: &Path) -> Option<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        match std::fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                let target = std::fs::read_link(&next).ok()?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            Ok(_) => real = next,
            Err(error) if is_absence(&error) => real = next,
            Err(_) => return None,
        }
    }
    Some(real)
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
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
    fn what_is_not_there_yet_stands_beneath_its_real_ancestor() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let inside = home.join("workspace");
        let outside = home.join("workspace-evil");
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("out")).unwrap();
        symlink("../workspace-evil/new", inside.join("dangling")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();

        let real = |path: &str| Files.real(&inside.join(path));
        assert_eq!(real("a/b"), Some(inside.join("a/b")));
        assert_eq!(real("out/x"), Some(outside.join("x")));
        assert_eq!(real("dangling"), Some(outside.join("new")));
        assert_eq!(real("../workspace-evil"), Some(outside.clone()));
        assert_eq!(real("a/../../x"), Some(home.join("x")));
        assert_eq!(real("out/../x"), Some(home.join("x")));
        assert_eq!(real("loop"), None);
        assert_eq!(Files.real(Path::new("relative")), None);
        assert_eq!(real("a\0b"), None);
    }

    #[test]
    fn a_program_keeps_its_name_in_its_real_folder() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::create_dir(home.join("bin")).unwrap();
        symlink("/bin/sh", home.join("bin/tool")).unwrap();
        symlink("bin", home.join("sbin")).unwrap();
        let tool = Some(home.join("bin/tool"));
        for name in ["./bin/tool", "sbin/tool", "bin/../sbin//tool"] {
            assert_eq!(Files.program(name, "", &home), tool, "{name}");
        }
        let path = home.join("sbin/").display().to_string();
        assert_eq!(Files.program("tool", &path, Path::new("/")), tool);
        assert_eq!(Files.program("bin/..", "", &home), None);
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("script");
        std::fs::write(&script, "#! /usr/bin/env python3 \nx").unwrap();
        assert_eq!(
            Files.interpreter(&script).as_deref(),
            Some("/usr/bin/env python3")
        );
        std::fs::write(&script, "x").unwrap();
        assert_eq!(Files.interpreter(&script), None);
        assert_eq!(Files.interpreter(home.path()), None);
    }
}
