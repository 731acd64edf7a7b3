//! Not attacks: those who are attacked, started by the tests outside of every sandbox.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use super::answer::{Attack, held};
use super::sys::{self, at, call};

pub(crate) fn serve(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        ("bystander", [_mark, key]) => bystander(key),
        _ => return None,
    })
}

/// Holds a secret in its memory, an open file, shared memory, queues and a key, tells where, and
/// lets go of all of it when its standard input closes. The secret is in its environment too.
fn bystander(key: &str) -> Attack {
    let secret = std::env::var("PALYRA_PROBE_SECRET").map_err(|_| held("NO_SECRET"))?;
    let key: i32 = key.parse().map_err(|_| held("BAD_ARGUMENT"))?;
    let memory = secret.clone().into_bytes();
    let file = call!(libc::SYS_memfd_create, c"bystander", 0)?;
    let mut file = std::fs::File::from(sys::owned(file));
    file.write_all(secret.as_bytes())?;
    let create = libc::IPC_CREAT | 0o600;
    let segment = call!(libc::SYS_shmget, key, 4_096, create)?;
    copy_in(segment, &secret)?;
    let queue = call!(libc::SYS_msgget, key, create)?;
    let name = sys::path(&format!("palyra-{key}"))?;
    let flags = libc::O_CREAT | libc::O_RDWR;
    // One short message: a uid has room for a few long queues only.
    let size: [i64; 8] = [0, 1, 16, 0, 0, 0, 0, 0];
    let posix = call!(libc::SYS_mq_open, &name, flags, 0o600, at(&size))?;
    let posix = sys::owned(posix);
    keep_key(&name, &secret)?;
    let mut out = std::io::stdout();
    let (pid, address) = (std::process::id(), memory.as_ptr() as usize);
    writeln!(out, "{pid} {address} {}", file.as_raw_fd())?;
    out.flush()?;
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    drop(posix);
    let _ = call!(libc::SYS_mq_unlink, &name);
    let _ = call!(libc::SYS_msgctl, queue, libc::IPC_RMID, 0);
    let _ = call!(libc::SYS_shmctl, segment, libc::IPC_RMID, 0);
    forget_key(&name);
    Ok("let go".to_owned())
}

/// Into shared memory, by having the kernel copy it.
fn copy_in(segment: i64, secret: &str) -> Result<(), super::answer::Failed> {
    let address = call!(libc::SYS_shmat, segment, 0, 0)?;
    let (read, mut write) = std::io::pipe()?;
    write.write_all(secret.as_bytes())?;
    call!(libc::SYS_read, read.as_raw_fd(), address, secret.len())?;
    call!(libc::SYS_shmdt, address)?;
    Ok(())
}

const USER_KEYRING: i32 = -4;

/// A key that every process of this uid may read.
fn keep_key(name: &std::ffi::CString, secret: &str) -> std::io::Result<()> {
    const SET_PERMISSIONS: i32 = 5;
    let (kind, value, length) = (c"user", secret.as_bytes(), secret.len());
    let key = call!(
        libc::SYS_add_key,
        kind,
        name,
        at(value),
        length,
        USER_KEYRING
    )?;
    let all_of_possessor_and_user = 0x3f3f_0000_u32;
    call!(
        libc::SYS_keyctl,
        SET_PERMISSIONS,
        key,
        all_of_possessor_and_user
    )?;
    Ok(())
}

fn forget_key(name: &std::ffi::CString) {
    const SEARCH: i32 = 10;
    const UNLINK: i32 = 9;
    let found = call!(libc::SYS_keyctl, SEARCH, USER_KEYRING, c"user", name, 0);
    if let Ok(key) = found {
        let _ = call!(libc::SYS_keyctl, UNLINK, key, USER_KEYRING);
    }
}
