//! The walls that need no namespace, and the other program that makes some.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType};

use super::{AtStep, Bad, Good, Tried, found, useless};
use crate::landlock::Abi;
use crate::sys::{self, RulesetAttr};

/// Forbids itself to list folders, and then tries.
pub(super) fn landlock() -> Tried {
    const READ_DIR: u64 = 1 << 3;
    let attr = RulesetAttr {
        handled_access_fs: READ_DIR,
        handled_access_net: 0,
        scoped: 0,
    };
    let ruleset = sys::landlock_create_ruleset(&attr).at("a ruleset")?;
    rustix::thread::set_no_new_privs(true).at("no_new_privs")?;
    sys::landlock_restrict_self(ruleset.as_fd(), 0).at("putting it in force")?;
    match std::fs::read_dir("/") {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => found(format!(
            "ABI {}; what no rule grants was refused",
            sys::landlock_abi()
        )),
        Err(error) => Err(Bad {
            step: "trying it",
            error,
        }),
        Ok(_) => Err(useless("trying it", "what no rule grants was allowed")),
    }
}

/// Puts on the filter that calls get, and makes a system call that it refuses.
pub(super) fn seccomp() -> Tried {
    let abi = Abi::of_this_kernel().unwrap_or(Abi::from_number(1));
    rustix::thread::set_no_new_privs(true).at("no_new_privs")?;
    let filter = crate::seccomp::for_call(abi);
    seccompiler::apply_filter(&filter)
        .map_err(|error| useless("putting it in force", &error.to_string()))?;
    match rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None) {
        Err(rustix::io::Errno::PERM) => found("a filtered system call was refused"),
        Err(error) => Err(error).at("trying it"),
        Ok(_) => Err(useless("trying it", "a filtered system call was allowed")),
    }
}

/// The distribution's own program, which an administrator may have granted what ours is not.
#[expect(
    clippy::disallowed_methods,
    reason = "it is only asked to start /bin/true"
)]
pub(super) fn bubblewrap() -> Tried {
    let places = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];
    let Some(program) = places.into_iter().find(|place| Path::new(place).exists()) else {
        return Err(std::io::Error::from_raw_os_error(libc::ENOENT)).at("finding `bwrap`");
    };
    let ran = std::process::Command::new(program)
        // With a user namespace, also for root, who could do without and must not.
        .args(["--unshare-user", "--unshare-all", "--die-with-parent"])
        .args(["--ro-bind", "/", "/"])
        .args(["--proc", "/proc", "--dev", "/dev", "/bin/true"])
        .env_clear()
        .output()
        .at("starting `bwrap`")?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(useless("running /bin/true in it", said.trim()));
    }
    Ok(Good::Found(format!(
        "{program} ran /bin/true in its namespaces"
    )))
}
