//! The layer between SQLite and its files: the default one, with somebody looking over its
//! shoulder.

#![expect(unsafe_code, reason = "SQLite's file layer is a table of C functions")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use rusqlite::ffi::{
    SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE,
    SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};

use super::{Code, Watched, watched_at, writing};

/// An open file: ours first, and the real one in the memory right behind it.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    /// From `Box::into_raw`; null for a file that nobody watches.
    watched: *mut Watched,
}

static REAL: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// Becomes the default layer; files that are open keep theirs.
pub(super) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default layer lives as long as the process. The copy differs in its name,
        // in how files are opened and removed, and in how much memory an open one takes; it is
        // leaked, because SQLite keeps the pointer.
        unsafe {
            let real = sqlite3_vfs_find(std::ptr::null());
            assert!(!real.is_null());
            REAL.store(real, Ordering::SeqCst);
            let shim = Box::leak(Box::new(std::ptr::read(real)));
            shim.zName = c"palyra-faults".as_ptr();
            shim.pNext = std::ptr::null_mut();
            shim.szOsFile += c_int::try_from(size_of::<Shim>()).unwrap();
            shim.xOpen = Some(open);
            shim.xDelete = Some(delete);
            assert_eq!(sqlite3_vfs_register(shim, 1), SQLITE_OK);
        }
    });
}

/// # Safety
/// `name` is null or a C string.
unsafe fn watched_name(name: *const c_char) -> Option<Watched> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as promised by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    watched_at(Path::new(OsStr::from_bytes(name.to_bytes())))
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives memory of the size that `register` asked for, so the real file fits
    // behind ours; the real layer is told its own pointer.
    unsafe {
        let layer = REAL.load(Ordering::SeqCst);
        let inner = behind(file);
        let code = match (*layer).xOpen {
            Some(open) => open(layer, name, inner, flags, out),
            None => rusqlite::ffi::SQLITE_CANTOPEN,
        };
        let opened = !(*inner).pMethods.is_null();
        let watched = watched_name(name).filter(|_| opened);
        std::ptr::write(
            file.cast::<Shim>(),
            Shim {
                base: sqlite3_file {
                    pMethods: if opened { &METHODS } else { std::ptr::null() },
                },
                watched: watched.map_or(std::ptr::null_mut(), |it| Box::into_raw(Box::new(it))),
            },
        );
        code
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, folder: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's own, handed on as they came.
    unsafe {
        let layer = REAL.load(Ordering::SeqCst);
        if let Some(watched) = watched_name(name) {
            watched.remove(folder != 0);
        }
        match (*layer).xDelete {
            Some(delete) => delete(layer, name, folder),
            None => rusqlite::ffi::SQLITE_IOERR_DELETE,
        }
    }
}

/// The real file behind ours.
///
/// # Safety
/// `file` was given to `open`.
unsafe fn behind(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the memory is larger than `Shim` by the size of a real file.
    unsafe { file.cast::<Shim>().add(1).cast() }
}

/// # Safety
/// `file` was opened by `open` and is not closed.
unsafe fn watched<'a>(file: *mut sqlite3_file) -> Option<&'a Watched> {
    // SAFETY: the pointer is null or from a box that `close` frees.
    unsafe { (*file.cast::<Shim>()).watched.as_ref() }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and uses it no more.
    unsafe {
        let code = forward_close(file);
        let watched = (*file.cast::<Shim>()).watched;
        if !watched.is_null() {
            drop(Box::from_raw(watched));
        }
        code
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    bytes: *mut c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer holds `count` bytes, filled by the real layer.
    unsafe {
        let code = forward_read(file, bytes, count, offset);
        let Some(watched) = watched(file).filter(|_| code == SQLITE_OK) else {
            return code;
        };
        let bytes = std::slice::from_raw_parts_mut(bytes.cast::<u8>(), amount(count));
        watched.read(bytes).map_or(SQLITE_IOERR_READ, |()| code)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer holds `count` bytes.
    unsafe {
        let _writing = writing();
        if let Some(watched) = watched(file) {
            let held = std::slice::from_raw_parts(bytes.cast::<u8>(), amount(count));
            if let Err(code) = watched.write(held, offset.unsigned_abs()) {
                // As the real layer spells them.
                return match code {
                    Code::Enospc => SQLITE_FULL,
                    Code::Eio | Code::Erofs => SQLITE_IOERR_WRITE,
                };
            }
        }
        forward_write(file, bytes, count, offset)
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: sqlite3_int64) -> c_int {
    // SAFETY: the arguments are SQLite's own, handed on as they came.
    unsafe {
        let _writing = writing();
        if let Some(watched) = watched(file)
            && watched.truncate(length.unsigned_abs()).is_err()
        {
            return SQLITE_IOERR_TRUNCATE;
        }
        forward_truncate(file, length)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's own, handed on as they came.
    unsafe {
        match watched(file) {
            Some(watched) => watched.sync().map_or(SQLITE_IOERR_FSYNC, |()| SQLITE_OK),
            None => forward_sync(file, flags),
        }
    }
}

fn amount(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Functions that hand everything on to the real file.
macro_rules! forward {
    ($($name:ident => $method:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $kind),*) $(-> $answer)? {
            // SAFETY: `file` was opened by `open`, so the real one lies behind it; the real layer
            // has every function of the second version, which `METHODS` says.
            unsafe {
                let real = behind(file);
                let method = (*(*real).pMethods).$method;
                method.unwrap_unchecked()(real, $($argument),*)
            }
        }
    )*};
}

forward! {
    forward_close => xClose() -> c_int;
    forward_read => xRead(bytes: *mut c_void, count: c_int, offset: sqlite3_int64) -> c_int;
    forward_write => xWrite(bytes: *const c_void, count: c_int, offset: sqlite3_int64) -> c_int;
    forward_truncate => xTruncate(length: sqlite3_int64) -> c_int;
    forward_sync => xSync(flags: c_int) -> c_int;
    forward_size => xFileSize(size: *mut sqlite3_int64) -> c_int;
    forward_lock => xLock(level: c_int) -> c_int;
    forward_unlock => xUnlock(level: c_int) -> c_int;
    forward_reserved => xCheckReservedLock(answer: *mut c_int) -> c_int;
    forward_control => xFileControl(operation: c_int, argument: *mut c_void) -> c_int;
    forward_sector => xSectorSize() -> c_int;
    forward_device => xDeviceCharacteristics() -> c_int;
    forward_map => xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int;
    forward_shm_lock => xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    forward_barrier => xShmBarrier();
    forward_unmap => xShmUnmap(remove: c_int) -> c_int;
}

/// The second version: with the shared index of a log, without mapped reads, which nobody could
/// watch.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(forward_size),
    xLock: Some(forward_lock),
    xUnlock: Some(forward_unlock),
    xCheckReservedLock: Some(forward_reserved),
    xFileControl: Some(forward_control),
    xSectorSize: Some(forward_sector),
    xDeviceCharacteristics: Some(forward_device),
    xShmMap: Some(forward_map),
    xShmLock: Some(forward_shm_lock),
    xShmBarrier: Some(forward_barrier),
    xShmUnmap: Some(forward_unmap),
    xFetch: None,
    xUnfetch: None,
};
