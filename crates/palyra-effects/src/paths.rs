//! Paths as the kernel will see them.

use std::path::{Component, Path, PathBuf};

/// `given` seen from `cwd`, as a shell's `cd` reads it: `..` takes the folder before it away,
/// even when that is a link.
pub(crate) fn logical(cwd: &Path, given: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in cwd.join(given).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

/// What every process has open or may throw things into; no effect on anything.
pub(crate) fn is_harmless(path: &Path) -> bool {
    [
        "/dev/null",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/tty",
    ]
    .iter()
    .any(|known| path == Path::new(known))
}

/// In a `.git` folder: its `config` and `hooks` say what git runs.
pub(crate) fn is_of_git(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == ".git")
}

/// A folder of programs that the system or its owner put there.
pub(crate) fn is_of_system(path: &Path) -> bool {
    [
        "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/snap", "/etc",
    ]
    .iter()
    .any(|folder| path.starts_with(folder))
}

/// Host and port of bash's `/dev/tcp/HOST/PORT`.
pub(crate) fn network_device(path: &str) -> Option<(&str, Option<u16>)> {
    let rest = path
        .strip_prefix("/dev/tcp/")
        .or_else(|| path.strip_prefix("/dev/udp/"))?;
    let (host, port) = rest.split_once('/').unwrap_or((rest, ""));
    Some((host, port.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_go_away() {
        assert_eq!(
            logical(Path::new("/w"), "../w-evil/./x"),
            Path::new("/w-evil/x")
        );
        assert_eq!(logical(Path::new("/w"), "../../.."), Path::new("/"));
        assert_eq!(logical(Path::new("/w"), "/etc/../x"), Path::new("/x"));
    }
}
