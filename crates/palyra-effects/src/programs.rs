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
    /// Writes to the files that it is given.
    pub(crate) writes: bool,
    exec_flags: Vec<&'static str>,
}

impl Entry {
    pub(crate) fn is(&self, group: ProgramGroup) -> bool {
        self.groups.contains(&group)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.plain || !self.groups.is_empty()
    }

    /// Whether an option of this program can make it run another.
    pub(crate) fn has_exec_flags(&self) -> bool {
        !self.exec_flags.is_empty()
    }

    /// Whether this argument makes the program run another one or read options elsewhere.
    pub(crate) fn is_exec_flag(&self, argument: &str) -> bool {
        let name = argument.split('=').next().unwrap_or(argument);
        self.exec_flags.iter().any(|flag| {
            if let Some(start) = flag.strip_suffix('*') {
                return argument.starts_with(start);
            }
            let (Some(rest), Some(letters)) = (argument.strip_prefix('-'), flag.strip_prefix('-'))
            else {
                return false;
            };
            match (letters.strip_prefix('-'), rest.strip_prefix('-')) {
                // GNU takes any prefix of a long option.
                (Some(_), Some(written)) => !written.is_empty() && flag.starts_with(name),
                (Some(_), None) => false,
                // A short one may stand in a bundle, after others.
                (None, None) if letters.len() == 1 => rest.contains(letters),
                // `-exec` and `--exec` are the same to some.
                (None, None | Some(_)) => {
                    letters.len() > 1 && name.trim_start_matches('-') == letters
                }
            }
        })
    }
}

static TABLE: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(table);
static NOTHING: Entry = Entry {
    groups: Vec::new(),
    shell: None,
    plain: false,
    writes: false,
    exec_flags: Vec::new(),
};

/// The name under which the table knows a program, if it does, and what it says.
pub(crate) fn look_up(program: &str) -> Option<(&'static str, &'static Entry)> {
    let name = Path::new(program).file_name()?.to_str()?;
    let name = without_machine(name);
    let without_version = name
        .trim_end_matches(|last: char| last.is_ascii_digit() || last == '.')
        .trim_end_matches('-');
    let without_suffix = name.split('.').next().unwrap_or(name);
    [name, without_version, without_suffix]
        .into_iter()
        .find_map(|name| TABLE.get_key_value(name))
        .map(|(name, entry)| (*name, entry))
}

/// `perl5.36-x86_64-linux-gnu`, `x86_64-linux-gnu-gcc` and `bash-static` without what is no name.
fn without_machine(name: &str) -> &str {
    let name = match name.split_once("-linux-gnu-") {
        Some((_, tool)) if !tool.is_empty() => tool,
        Some(_) | None => name,
    };
    let variants = ["-static", "-dbg", "-multiarch", "-nox", "-gtk"];
    if let Some(plain) = variants.iter().find_map(|end| name.strip_suffix(end)) {
        return plain;
    }
    match (name.contains("-linux"), name.split_once('-')) {
        (true, Some((plain, _))) if plain != "ld" => plain,
        _ => name,
    }
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
                "writes" => entry.writes = true,
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
        let known = ["posix_shells", "bash_shells", "plain", "writes"];
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
            ("bash-static", "bash"),
            ("perl5.36-x86_64-linux-gnu", "perl"),
            ("x86_64-linux-gnu-gcc-12", "gcc"),
            ("ld-linux-x86-64.so.2", "ld-linux-x86-64.so.2"),
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
        assert!(entry("go").is_exec_flag("--exec=x"));
        assert!(entry("split").is_exec_flag("--f=x"));
        assert!(entry("gcc").is_exec_flag("-B./x"));
        assert!(!entry("gcc").is_exec_flag("-DB"));
        assert!(entry("less").is_exec_flag("+!ls"));
        assert!(!tar.is_exec_flag("--"));
    }
}
