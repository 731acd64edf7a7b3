//! The cage as a profile for `sandbox-exec` of macOS. Planned and compared with a golden file;
//! nothing here was ever run.
//!
//! A profile forbids and does not hide: names of what is forbidden can be seen. There are no folders
//! in memory, so temporary files go to the call's own folder; and no namespaces, so processes of the
//! same user can be seen.

use std::fmt::Write;
use std::path::Path;

use super::cage::{Cage, Step, Writing};

/// The profile's text.
pub(crate) fn profile(cage: &Cage) -> String {
    let mut text = String::from(
        "(version 1)\n(deny default)\n(allow process-fork)\n(allow process-exec)\n\
         (allow signal (target same-sandbox))\n(allow sysctl-read)\n\
         (allow file-read-metadata)\n",
    );
    for step in &cage.steps {
        match step {
            Step::Read { at } => allow(&mut text, "file-read*", at),
            Step::Workspace { at, .. } => allow(&mut text, "file-read*", at),
            Step::Device { at } => {
                allow(&mut text, "file-read* file-write-data file-ioctl", at);
            }
            // The system's own links lead where they lead; terminals and processes are not apart.
            Step::Link { .. }
            | Step::Terminals
            | Step::Proc { .. }
            | Step::Scratch { .. }
            | Step::Pin { .. } => {}
            // After what allows it: the last rule that fits counts.
            Step::Cover { .. } => {}
        }
    }
    for (at, writing) in &cage.writable {
        match writing {
            Writing::Workspace | Writing::Scratch => allow(&mut text, "file-write*", at),
        }
    }
    for step in &cage.steps {
        if let Step::Cover { at, .. } = step {
            let _ = writeln!(text, "(deny file* (subpath {}))", quoted(at));
        }
    }
    text.push_str(match cage.isolated_network {
        true => "(deny network*)\n(allow network* (local ip \"localhost:*\"))\n",
        false => "(allow network*)\n(deny network* (remote unix-socket))\n",
    });
    text
}

fn allow(text: &mut String, what: &str, at: &Path) {
    let _ = writeln!(text, "(allow {what} (subpath {}))", quoted(at));
}

/// As the profile's language quotes text.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn the_profile_for_macos_is_as_it_was_agreed() {
        golden::compare("macos.sb", &profile(&golden::cage()));
    }

    #[test]
    fn a_path_cannot_end_its_rule() {
        let evil = Path::new("/w\")(allow default)(\\");
        assert_eq!(quoted(evil), r#""/w\")(allow default)(\\""#);
    }
}
