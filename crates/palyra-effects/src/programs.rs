//! What programs are, by name: the table is `programs.txt`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use palyra_core::ProgramGroup;

/// The grammar of a shell's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `sh` may be dash or bash: what they read differently is opaque.
    Posix,
    /// bash itself.
    Bash,
}

/// What the table says about one name.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) groups: Vec<ProgramGroup>,
    pub(crate) shell: Option<Dialect>,
    /// Starts nothing by itself, so an operand that is a program is only a word.
    pub(crate) plain: bool,
    exec_flags: Vec<&'static str>,
}

impl Entry {
    pub(crate) fn is(&self, group: ProgramGroup) -> bool {
        self.groups.contains(&group)
    }

    /// Whether this argument makes the program run another one or read options elsewhere.
    pub(crate) fn is_exec_flag(&self, argument: &str) -> bool {
        let Some(rest) = argument.strip_prefix('-') else {
            return false;
        };
        let name = argument.split('=').next().unwrap_or(argument);
        self.exec_flags.iter().any(|flag| {
            if name == *flag {
                return true;
            }
            match (flag.starts_with("--"), rest.starts_with('-')) {
                // GNU takes any prefix of a long option.
                (true, true) => name.len() > 3 && flag.starts_with(name),
                // A short one may stand in a bundle, after others.
                (false, false) => {
                    let letter = flag.strip_prefix('-').unwrap_or(flag);
                    letter.len() == 1 && rest.contains(letter)
                }
                (true, false) | (false, true) => false,
            }
        })
    }
}

static TABLE: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(table);
static NOTHING: Entry = Entry {
    groups: Vec::new(),
    shell: None,
    plain: false,
    exec_flags: Vec::new(),
};

/// The name under which the table knows a program, if it does, and what it says.
pub(crate) fn look_up(program: &str) -> Option<(&'static str, &'static Entry)> {
    let name = Path::new(program).file_name()?.to_str()?;
    let without_version = name
        .trim_end_matches(|last: char| last.is_ascii_digit() || last == '.')
        .trim_end_matches('-');
    let without_suffix = name.split('.').next().unwrap_or(name);
    [name, without_version, without_suffix]
        .into_iter()
        .find_map(|name| TABLE.get_key_value(name))
        .map(|(name, entry)| (*name, entry))
}

/// What the table says about a program, or nothing.
pub(crate) fn entry(program: &str) -> &'static Entry {
    look_up(program).map_or(&NOTHING, |(_, entry)| entry)
}

fn table() -> HashMap<&'static str, Entry> {
    let mut table: HashMap<&'static str, Entry> = HashMap::new();
    for line in include_str!("programs.txt").lines() {
        let Some((heading, names)) = line.split_once(": ").filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        if let Some(program) = heading.strip_prefix("exec_flags ") {
            let entry = table.entry(program).or_default();
            entry.exec_flags.extend(names.split_whitespace());
            continue;
        }
        for name in names.split_whitespace() {
            let entry = table.entry(name).or_default();
            match heading {
                "posix_shells" => entry.shell = Some(Dialect::Posix),
                "bash_shells" => entry.shell = Some(Dialect::Bash),
                "plain" => entry.plain = true,
                group => entry.groups.extend(
                    ProgramGroup::ALL
                        .into_iter()
                        .find(|known| known.as_str() == group),
                ),
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heading_is_known() {
        let known = ["posix_shells", "bash_shells", "plain"];
        for line in include_str!("programs.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (heading, _) = line.split_once(": ").expect(line);
            let group = ProgramGroup::ALL
                .iter()
                .any(|group| group.as_str() == heading);
            let flags = heading.starts_with("exec_flags ");
            assert!(group || flags || known.contains(&heading), "{line}");
        }
    }

    #[test]
    fn versions_and_folders_do_not_hide_a_program() {
        for (spelled, name) in [
            ("/usr/bin/python3.11", "python"),
            ("python3", "python"),
            ("perl5.36.0", "perl"),
            ("lua5.4", "lua"),
            ("nc.openbsd", "nc"),
            ("vim.basic", "vim"),
            ("gcc-12", "gcc"),
            ("../x/bash", "bash"),
            ("md5sum", "md5sum"),
            ("bzip2", "bzip2"),
        ] {
            assert_eq!(
                look_up(spelled).map(|(name, _)| name),
                Some(name),
                "{spelled}"
            );
        }
        for unknown in ["", "/", "..", "7", "pythonic", "3.11"] {
            assert!(look_up(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn exec_flags_in_every_spelling() {
        let tar = entry("tar");
        assert!(tar.is_exec_flag("--to-command=sh"));
        assert!(tar.is_exec_flag("--to-com=sh"));
        assert!(tar.is_exec_flag("-xIzstd"));
        assert!(!tar.is_exec_flag("-xzf"));
        assert!(entry("go").is_exec_flag("-exec"));
        assert!(entry("git").is_exec_flag("-x"));
    }
}
