//! Landlock: which rights a kernel version knows, and rulesets made of them.
//!
//! Every right that the kernel knows is handled, so what is not granted is refused. Raw calls
//! rather than the `landlock` crate: that one's compatibility layer looks at every handle again
//! for every ruleset, and a ruleset is made for every call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys::{self, RulesetAttr};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const RESOLVE_UNIX: u64 = 1 << 16;

/// The rights that also make sense for something that is not a folder.
const OF_A_FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Never granted anywhere: a device node would be a second way to the disk under the masked
/// folder, and a socket in the file system is a way out (the filter refuses those as well).
const NEVER: u64 = MAKE_CHAR | MAKE_BLOCK | RESOLVE_UNIX;

const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 1 << 1;

/// `LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF`: the self-test's refusals are no news for the audit
/// log.
const LOG_SAME_EXEC_OFF: u32 = 1;

/// A kernel's version of Landlock, 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abi(u32);

/// How much of a subtree is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Everything but making device nodes.
    Full,
    /// The same less sockets and pipes: whoever finds one later may wait on it for ever.
    Workspace,
    /// Reading and executing.
    Read,
    /// Reading, writing and asking devices.
    Devices,
    /// What reading and listing files takes.
    FileRead,
    /// What replacing and creating files takes.
    FileWrite,
}

impl Abi {
    /// This kernel's, if it has Landlock and it is enabled.
    pub(crate) fn of_this_kernel() -> Option<Self> {
        Some(sys::landlock_abi()).filter(|abi| *abi > 0).map(Self)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Whether `truncate(2)` is checked; before, the filter has to refuse that call.
    pub(crate) const fn checks_truncate(self) -> bool {
        self.0 >= 3
    }

    /// Whether signals and abstract sockets stay inside the call.
    pub(crate) const fn has_scopes(self) -> bool {
        self.0 >= 6
    }

    const fn handled(self) -> u64 {
        let known_bits = match self.0 {
            0 => 0,
            1 => 13,
            2 => 14,
            3 | 4 => 15,
            5..=8 => 16,
            9.. => 17,
        };
        (1 << known_bits) - 1
    }

    const fn scopes(self) -> u64 {
        if self.has_scopes() {
            SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL
        } else {
            0
        }
    }

    /// The rights of a grant on a folder, or on anything else.
    const fn rights(self, access: Access, is_folder: bool) -> u64 {
        let wanted = match access {
            Access::Full => !NEVER,
            Access::Workspace => !(NEVER | MAKE_SOCK | MAKE_FIFO),
            Access::Devices => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
            Access::Read => EXECUTE | READ_FILE | READ_DIR,
            Access::FileRead => READ_FILE | READ_DIR,
            Access::FileWrite => {
                READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE
            }
        };
        let fitting = if is_folder { u64::MAX } else { OF_A_FILE };
        self.handled() & wanted & fitting
    }
}

/// A ruleset being made.
pub(crate) struct Ruleset {
    abi: Abi,
    fd: OwnedFd,
}

impl Ruleset {
    /// One that refuses everything.
    pub(crate) fn new(abi: Abi) -> io::Result<Self> {
        Self::with(abi, abi.scopes())
    }

    /// One that refuses every file, and leaves signals alone.
    pub(crate) fn without_scopes(abi: Abi) -> io::Result<Self> {
        Self::with(abi, 0)
    }

    fn with(abi: Abi, scoped: u64) -> io::Result<Self> {
        let attr = RulesetAttr {
            handled_access_fs: abi.handled(),
            // The network is not this layer's business: rules there know ports, not hosts.
            handled_access_net: 0,
            scoped,
        };
        let fd = sys::landlock_create_ruleset(&attr)?;
        Ok(Self { abi, fd })
    }

    /// Grants what `handle` is a handle of, and everything beneath.
    pub(crate) fn grant(
        &self,
        handle: impl AsFd,
        access: Access,
        is_folder: bool,
    ) -> io::Result<()> {
        let rights = self.abi.rights(access, is_folder);
        sys::landlock_add_path(self.fd.as_fd(), handle.as_fd(), rights)
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Puts this process behind `ruleset`.
pub(crate) fn restrict_self(ruleset: impl AsFd, abi: Abi) -> io::Result<()> {
    let flags = if abi.number() >= 7 {
        LOG_SAME_EXEC_OFF
    } else {
        0
    };
    sys::landlock_restrict_self(ruleset.as_fd(), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_handles_all_it_knows() {
        let bits = |abi: u32| Abi(abi).handled().count_ones();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 8, 9].map(bits),
            [13, 14, 15, 15, 16, 16, 16, 16, 17]
        );
        assert_eq!(Abi(5).scopes(), 0);
        assert_eq!(Abi(6).scopes(), 3);
    }

    #[test]
    fn device_nodes_are_never_granted() {
        for abi in 1..=9 {
            for access in [
                Access::Full,
                Access::Workspace,
                Access::Devices,
                Access::Read,
                Access::FileRead,
                Access::FileWrite,
            ] {
                assert_eq!(Abi(abi).rights(access, true) & NEVER, 0);
            }
        }
    }

    #[test]
    fn a_file_gets_no_rights_of_folders() {
        assert_eq!(Abi(7).rights(Access::Full, false), OF_A_FILE);
        assert_eq!(
            Abi(1).rights(Access::Full, false),
            EXECUTE | WRITE_FILE | READ_FILE
        );
        assert_eq!(
            Abi(7).rights(Access::Read, true),
            EXECUTE | READ_FILE | READ_DIR
        );
    }
}
