//! How an attack tells what came of it, in one line.

use std::io;

/// What an attack got, or why it got nothing.
pub(crate) type Attack = Result<String, Failed>;

/// Why an attack got nothing.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was refused: an errno, a signal, or another word.
    Held(String),
    /// What it aims at does not exist on this kernel.
    Absent(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Self::Absent("ENOSYS".to_owned()),
            Some(code) => Self::Held(name(code)),
            None => Self::Held(error.to_string().replace(char::is_whitespace, "_")),
        }
    }
}

/// A file that only some kernels have.
pub(crate) fn absent_without(error: io::Error) -> Failed {
    match error.raw_os_error() {
        Some(code @ (libc::ENOENT | libc::ENXIO | libc::ENODEV)) => Failed::Absent(name(code)),
        _ => error.into(),
    }
}

/// Refused in a way that has no errno.
pub(crate) fn held(word: &str) -> Failed {
    Failed::Held(word.to_owned())
}

/// The line.
pub(crate) fn line(attack: Attack) -> String {
    match attack {
        Ok(got) => format!("open {}", got.escape_debug()),
        Err(Failed::Held(why)) => format!("held {why}"),
        Err(Failed::Absent(why)) => format!("absent {why}"),
    }
}

/// The last refusal, if each of them was refused; else what the first success got.
pub(crate) fn any(attacks: impl IntoIterator<Item = Attack>) -> Attack {
    let mut last = held("NOTHING_TRIED");
    for attack in attacks {
        match attack {
            Err(failed) => last = failed,
            got => return got,
        }
    }
    Err(last)
}

const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::EROFS, "EROFS"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOKEY, "ENOKEY"),
    (libc::ESTALE, "ESTALE"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EUSERS, "EUSERS"),
];

/// The errno as C programs write it.
pub(crate) fn name(code: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == code);
    known.map_or_else(|| format!("ERRNO_{code}"), |(_, name)| (*name).to_owned())
}

/// How a child ended that should have ended well.
pub(crate) fn ended_well(how: i32) -> Result<(), Failed> {
    match how {
        0 => Ok(()),
        signal @ ..0 => Err(Failed::Held(format!("SIGNAL_{}", -signal))),
        code => Err(Failed::Held(name(code))),
    }
}
