//! Programs, paths and hosts as entities: each with everything it is in, made for one question.
//!
//! Policy never compares pieces of text. "Below this folder" and "under this domain" are questions
//! about ancestors, and ancestors are whole components: `/srv-evil` is not in `/srv`, and
//! `evil-example.com` is not in `example.com`. What is not in its normal form has no ancestors to
//! speak of, and is refused.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Component, Path};

use cedar_policy::{Entity, EntityUid};
use palyra_core::Denial;

use crate::error::unavailable;
use crate::vocabulary::Vocabulary;

/// How many folders a path may be deep, and how many labels a host may have.
const MOST_LEVELS: usize = 256;

/// A program: in its own path, in every folder above it, and in its groups.
pub(crate) fn program(words: &Vocabulary, path: &Path) -> Result<Entity, Denial> {
    let text = normal(path)?;
    let folders = levels(path).map(|folder| words.path(folder));
    let groups = groups(path).iter().map(|group| words.program_group(group));
    Ok(entity(words.program(text), folders.chain(groups)))
}

/// A path: in every folder above it.
pub(crate) fn path(words: &Vocabulary, path: &Path) -> Result<Entity, Denial> {
    let text = normal(path)?;
    let folders = levels(path).skip(1).map(|folder| words.path(folder));
    Ok(entity(words.path(text), folders))
}

/// A host: in the domain of its own name and in every domain above it. An address is in none.
pub(crate) fn host(words: &Vocabulary, name: &str) -> Result<Entity, Denial> {
    let host = words.host(name);
    if name.parse::<IpAddr>().is_ok() {
        return Ok(entity(host, []));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    // A name whose last label is a number is an address in disguise.
    let numeric = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.len() > 253 || !name.split('.').all(label) || numeric(last) || last.starts_with("0x") {
        return Err(unavailable(
            format_args!("`{}` is not a host in its normal form", name.escape_debug()),
            "write it in lower case, in ASCII, without a trailing dot",
        ));
    }
    let domains = std::iter::successors(Some(name), |domain| Some(domain.split_once('.')?.1));
    Ok(entity(host, domains.map(|domain| words.domain(domain))))
}

/// What a program is, by its name. The effects of a call will say so once they are resolved by
/// `palyra-effects`; then this reads them from there.
pub(crate) fn groups(program: &Path) -> &'static [&'static str] {
    let name = program.file_name().and_then(|name| name.to_str());
    // `python3.12` and `perl5.36` are what they are without their version.
    let bare = name
        .unwrap_or_default()
        .trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.' || letter == '-');
    match bare {
        "sh" | "ash" | "bash" | "dash" | "fish" | "ksh" | "mksh" | "zsh" | "csh" | "tcsh"
        | "busybox" | "toybox" | "python" | "pypy" | "node" | "nodejs" | "deno" | "bun"
        | "perl" | "ruby" | "php" | "lua" | "luajit" | "tclsh" | "expect" | "awk" | "gawk"
        | "mawk" | "sed" | "ed" | "ex" | "vi" | "vim" | "nvim" | "emacs" | "osascript" | "pwsh"
        | "java" | "jshell" | "make" | "gmake" | "gdb" | "Rscript" | "julia" | "guile"
        | "scheme" => &["interpreters"],
        "env"
        | "sudo"
        | "su"
        | "doas"
        | "pkexec"
        | "runuser"
        | "setpriv"
        | "xargs"
        | "find"
        | "parallel"
        | "nice"
        | "ionice"
        | "nohup"
        | "setsid"
        | "stdbuf"
        | "timeout"
        | "time"
        | "watch"
        | "script"
        | "unshare"
        | "nsenter"
        | "chroot"
        | "bwrap"
        | "systemd-run"
        | "ssh"
        | "docker"
        | "podman"
        | "kubectl"
        | "strace"
        | "ltrace"
        | "flock"
        | "tmux"
        | "screen"
        | "npx"
        | "uvx"
        | "pipx"
        | "ld-linux-x86-64.so"
        | "ld-linux-aarch64.so"
        | "ld-musl-x86_64.so" => &["wrappers"],
        "git" | "hg" | "jj" | "svn" => &["vcs"],
        _ => &[],
    }
}

/// The path as text, when it is absolute, in its normal form, and not too deep.
fn normal(path: &Path) -> Result<&str, Denial> {
    let refused = |why: &str| {
        unavailable(
            format_args!("the path `{}` {why}", path.display()),
            "use its real absolute path, then repeat the call",
        )
    };
    let text = path.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    let mut parts = path.components();
    let rooted = parts.next() == Some(Component::RootDir);
    if !rooted || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused("is not absolute and normal"));
    }
    // `components` drops `.`, doubled and trailing slashes: nothing may have been dropped.
    let kept: usize = path
        .components()
        .skip(1)
        .map(|part| part.as_os_str().len() + 1)
        .sum();
    if kept.max(1) != text.len() {
        return Err(refused("is not absolute and normal"));
    }
    if path.components().count() > MOST_LEVELS {
        return Err(refused("is too deep"));
    }
    Ok(text)
}

/// The path itself and every folder above it.
fn levels(path: &Path) -> impl Iterator<Item = &str> {
    path.ancestors().filter_map(Path::to_str)
}

/// No attributes, and all ancestors as parents: there is nothing left to follow.
fn entity(uid: EntityUid, ancestors: impl IntoIterator<Item = EntityUid>) -> Entity {
    Entity::new_no_attrs(uid, ancestors.into_iter().collect::<HashSet<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vocabulary {
        Vocabulary::new().unwrap()
    }

    fn within(entity: Entity) -> Vec<String> {
        let (_, _, parents) = entity.into_inner();
        let mut parents: Vec<String> = parents.iter().map(ToString::to_string).collect();
        parents.sort();
        parents
    }

    #[test]
    fn a_path_is_in_every_folder_above_it_and_no_other() {
        let of = |text: &str| path(&words(), Path::new(text)).map(within);
        assert_eq!(
            of("/srv/app/x").unwrap(),
            [
                "Palyra::Path::\"/\"",
                "Palyra::Path::\"/srv\"",
                "Palyra::Path::\"/srv/app\""
            ]
        );
        assert_eq!(of("/srv-evil").unwrap(), ["Palyra::Path::\"/\""]);
        assert_eq!(of("/").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_normal_is_refused() {
        for text in [
            "",
            "srv",
            "./srv",
            "/srv/",
            "//srv",
            "/srv//x",
            "/srv/../etc",
            "/srv/.",
        ] {
            assert!(path(&words(), Path::new(text)).is_err(), "{text}");
            assert!(program(&words(), Path::new(text)).is_err(), "{text}");
        }
        let deep = "/x".repeat(MOST_LEVELS + 1);
        assert!(path(&words(), Path::new(&deep)).is_err());
    }

    #[test]
    fn a_program_is_in_its_groups_and_folders() {
        let of = |text: &str| within(program(&words(), Path::new(text)).unwrap());
        assert_eq!(
            of("/usr/bin/git"),
            [
                "Palyra::Path::\"/\"",
                "Palyra::Path::\"/usr\"",
                "Palyra::Path::\"/usr/bin\"",
                "Palyra::Path::\"/usr/bin/git\"",
                "Palyra::ProgramGroup::\"vcs\""
            ]
        );
        for (name, group) in [
            ("bash", "interpreters"),
            ("python3.12", "interpreters"),
            ("perl5.36.0", "interpreters"),
            ("env", "wrappers"),
            ("sudo", "wrappers"),
            ("hg", "vcs"),
        ] {
            let path = Path::new("/opt").join(name);
            assert_eq!(groups(&path), [group], "{name}");
        }
        assert!(groups(Path::new("/usr/bin/ls")).is_empty());
        assert!(groups(Path::new("/")).is_empty());
    }

    #[test]
    fn a_host_is_in_every_domain_above_it_and_no_other() {
        let of = |text: &str| host(&words(), text).map(within);
        assert_eq!(
            of("api.example.com").unwrap(),
            [
                "Palyra::Domain::\"api.example.com\"",
                "Palyra::Domain::\"com\"",
                "Palyra::Domain::\"example.com\""
            ]
        );
        assert_eq!(of("127.0.0.1").unwrap(), Vec::<String>::new());
        assert_eq!(of("::1").unwrap(), Vec::<String>::new());
        for text in [
            "",
            ".",
            "Example.com",
            "example.com.",
            "a..b",
            "1.2.3",
            "0x7f000001",
            "exämple.com",
            "a b",
            "127.1",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
