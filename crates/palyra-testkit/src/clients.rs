//! Clients that nobody here wrote, as `scripts/prepare.sh` installs them beside the build.

use std::path::PathBuf;

use crate::{bin, not_run};

/// A file of the installed clients, such as `python/bin/python`; if it is not there, the test is
/// noted as not run.
#[must_use]
pub fn outside_client(test: &str, file: &str) -> Option<PathBuf> {
    let build = bin("palyra");
    let target = build.ancestors().nth(2).expect("target/PROFILE/palyra");
    let found = target.join("clients").join(file);
    if found.exists() {
        return Some(found);
    }
    let why = format!(
        "`clients/{file}` is not beside the build; to add: . scripts/prepare.sh; use_target_dir; \
         install_outside_clients"
    );
    not_run(test, &why);
    None
}
