//! The cage as a profile for `sandbox-exec` of macOS. Planned and compared with a golden file;
//! nothing here was ever run.
//!
//! A profile forbids and does not hide: names of what is forbidden can be seen. There are no folders
//! in memory, so temporary files go to the call's own folder; and no namespaces, so processes of the
//! same user can be seen.

use std::fmt::Write;
use std::path::Path;

use super::cage::{Cage, Step};
use crate::ground::policy::Hold;

/// The profile's text. `TMP` is the call's own folder for temporary files, given beside it.
pub(crate) fn profile(cage: &Cage) -> String {
    let mut text = String::from(
        "(version 1)\n(deny default)\n(allow process-fork)\n(allow process-exec)\n\
         (allow signal (target same-sandbox))\n(allow sysctl-read)\n\
         (allow file-read-metadata)\n(allow file-read* file-write* (subpath (param \"TMP\")))\n",
    );
    // The last rule that fits counts, so what is covered comes after what allows it.
    let mut covers = String::new();
    for step in &cage.steps {
        match step {
            Step::Read { at } => rule(&mut text, "allow file-read*", "subpath", at),
            Step::Workspace { at, writable, .. } => {
                let how = match writable {
                    true => "allow file-read* file-write*",
                    false => "allow file-read*",
                };
                rule(&mut text, how, "subpath", at);
            }
            Step::Device { at } => {
                let how = "allow file-read* file-write-data file-ioctl";
                rule(&mut text, how, "literal", at);
            }
            Step::Cover { at, .. } => rule(&mut covers, "deny file*", "subpath", at),
            // What is above comes first, and what is beneath decides.
            Step::Guard(guard) => {
                let what = match guard.hold {
                    Hold::Masked => "deny file-read-data file-write*",
                    Hold::ReadOnly => "deny file-write*",
                    Hold::Pinned => "deny file-write-unlink",
                    Hold::Writable => "allow file-write*",
                };
                let reach = match guard.hold {
                    Hold::Pinned => "literal",
                    Hold::Masked | Hold::ReadOnly | Hold::Writable => "subpath",
                };
                rule(
                    &mut covers,
                    what,
                    reach,
                    &cage.workspace().join(guard.at.path()),
                );
            }
            // Nothing can lie over a file here. It cannot be written to from inside, and what was
            // decided is compared before it starts.
            Step::Code(copy) => {
                let at = cage.workspace().join(&copy.at);
                rule(&mut covers, "deny file-write*", "literal", &at);
            }
            // A folder in memory stands for one that must not be written: there is none here. Links
            // lead where they lead; terminals and processes are not apart.
            Step::Scratch { .. }
            | Step::Link { .. }
            | Step::Laid(_)
            | Step::Terminals
            | Step::Proc { .. }
            | Step::Pin { .. } => {}
        }
    }
    text.push_str(&covers);
    text.push_str(match cage.isolated_network {
        true => "(deny network*)\n",
        false => "(allow network*)\n(deny network* (remote unix-socket))\n",
    });
    text
}

fn rule(text: &mut String, what: &str, reach: &str, at: &Path) {
    let _ = writeln!(text, "({what} ({reach} {}))", quoted(at));
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
