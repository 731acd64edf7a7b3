//! What to do about each missing piece: the exact command, wherever there is one.

use std::path::Path;

use super::host::Host;
use super::trial::What;

/// The step of a trial at which the namespaces stand and the thing itself is mounted.
pub(crate) const MOUNTING: &str = "mounting it";

/// What to do when `what` could not be made, and came as far as `step`.
pub(crate) fn remedy(what: What, step: &str, errno: i32, host: &Host) -> String {
    match what {
        What::Landlock => landlock(errno),
        What::Seccomp => "use a kernel with CONFIG_SECCOMP_FILTER (every distribution's has it); in a \
                          container, allow the system call `seccomp`"
            .to_owned(),
        What::UserNamespace | What::Namespaces | What::Mounts => namespaces(host),
        What::Proc if host.container && step == MOUNTING => {
            "the container covers parts of /proc, so no new one may be mounted: start it with \
             `--security-opt systempaths=unconfined`, or run palyrad outside"
                .to_owned()
        }
        What::IdmappedMount => "keep workspaces on a file system that can be idmapped (ext4, xfs, \
                                btrfs, tmpfs; Linux 5.12 or later), or let an ordinary user own them"
            .to_owned(),
        What::Overlay if step == MOUNTING => {
            "use Linux 5.11 or later with the module loaded: sudo modprobe overlay".to_owned()
        }
        What::Proc | What::Overlay => namespaces(host),
        What::Processes | What::Memory | What::Cpu => cgroup(host),
        What::Bubblewrap => match errno {
            libc::ENOENT => "sudo apt-get install bubblewrap".to_owned(),
            _ => namespaces(host),
        },
    }
}

fn landlock(errno: i32) -> String {
    match errno {
        libc::EOPNOTSUPP => {
            "the kernel has Landlock but it is switched off: add it to the security modules, such as \
             `lsm=landlock,lockdown,yama,integrity,apparmor`, in GRUB_CMDLINE_LINUX of \
             /etc/default/grub, then: sudo update-grub && sudo reboot"
        }
        _ => "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK",
    }
    .to_owned()
}

/// The order is that of the causes: what switches namespaces off for everybody comes first.
fn namespaces(host: &Host) -> String {
    if host.no_namespaces {
        return "sudo sysctl -w user.max_user_namespaces=15000".to_owned();
    }
    if host.clone_is_off {
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned();
    }
    if host.apparmor_restricts {
        return apparmor(&host.program);
    }
    if host.container {
        return "start the container with `--security-opt seccomp=unconfined --security-opt \
                apparmor=unconfined`, or run palyrad outside"
            .to_owned();
    }
    "use a kernel with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS and CONFIG_UTS_NS"
        .to_owned()
}

/// Ubuntu 24.04 and later: a namespace can be made, but nothing can be done in it without a profile.
///
/// The profile is the daemon's. Its helper runs from memory, where no path leads to it, and has
/// what the daemon has.
fn apparmor(program: &Path) -> String {
    let program = program.display();
    format!(
        "kernel.apparmor_restrict_unprivileged_userns is 1, so give palyrad a profile:\n\
         sudo tee /etc/apparmor.d/palyrad <<'EOF'\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         profile palyrad {program} flags=(unconfined) {{\n\
         \x20 userns,\n\
         \x20 include if exists <local/palyrad>\n\
         }}\n\
         EOF\n\
         sudo apparmor_parser -r /etc/apparmor.d/palyrad\n\
         and start palyrad again. Or, for every program on this machine:\n\
         sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )
}

fn cgroup(host: &Host) -> String {
    if host.root {
        return "the hierarchy of cgroups is read-only or lacks this controller; in a container, \
                start it with `--cgroupns=private` and a writable /sys/fs/cgroup"
            .to_owned();
    }
    if !host.unified {
        return "this machine mounts version 1 of cgroups, which cannot be delegated safely: boot \
                with `systemd.unified_cgroup_hierarchy=1`, or run palyrad as root"
            .to_owned();
    }
    "have systemd delegate one: systemd-run --user --scope -p Delegate=yes palyrad".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ubuntu() -> Host {
        Host {
            apparmor_restricts: true,
            program: "/usr/bin/palyrad".into(),
            ..Host::default()
        }
    }

    #[test]
    fn ubuntus_restriction_is_named_with_its_commands() {
        for what in [
            What::UserNamespace,
            What::Namespaces,
            What::Mounts,
            What::Proc,
        ] {
            let text = remedy(what, "", libc::EPERM, &ubuntu());
            for line in [
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
                "sudo apparmor_parser -r /etc/apparmor.d/palyrad",
                "profile palyrad /usr/bin/palyrad flags=(unconfined) {",
                "  userns,",
            ] {
                assert!(text.lines().any(|it| it == line), "{line}: {text}");
            }
        }
    }

    #[test]
    fn a_container_is_to_blame_only_for_what_it_covers() {
        let mut host = ubuntu();
        host.container = true;
        let at = |step| remedy(What::Proc, step, libc::EPERM, &host);
        assert!(at(MOUNTING).contains("systempaths=unconfined"));
        assert!(at("a user namespace").contains("apparmor_restrict_unprivileged_userns"));
    }

    #[test]
    fn what_is_off_for_everybody_comes_first() {
        let mut host = ubuntu();
        host.clone_is_off = true;
        let text = remedy(What::Mounts, "", libc::EPERM, &host);
        assert_eq!(text, "sudo sysctl -w kernel.unprivileged_userns_clone=1");
        host.no_namespaces = true;
        let text = remedy(What::Mounts, "", libc::EPERM, &host);
        assert_eq!(text, "sudo sysctl -w user.max_user_namespaces=15000");
    }

    #[test]
    fn every_piece_has_a_remedy_on_every_machine() {
        let hosts = [
            Host::default(),
            ubuntu(),
            Host {
                root: true,
                ..Host::default()
            },
            Host {
                container: true,
                unified: true,
                ..Host::default()
            },
        ];
        for host in &hosts {
            for what in What::ALL {
                for errno in [libc::EPERM, libc::ENOENT, libc::EOPNOTSUPP] {
                    assert!(remedy(what, MOUNTING, errno, host).len() > 20, "{what:?}");
                }
            }
        }
    }
}
