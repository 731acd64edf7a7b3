//! Probes 1 to 16: files that are not the call's.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use super::answer::{Attack, Failed, absent_without, any, held};
use super::sys::{self, at, call};

pub(crate) fn attack(probe: &str, arguments: &[&str]) -> Option<Attack> {
    Some(match (probe, arguments) {
        // 1, 2, 5, 13: any file by any path.
        ("read", [path]) => read(path),
        // 6, 7, 8, 11, 12, 13: a new file, which is left there.
        ("create", [path]) => create(path),
        // 7, 8, 10: a file that is there.
        ("append", [path]) => append(path),
        ("swap", [folder, outside]) => swap(folder, outside),
        ("spin", [folder, outside, turns]) => spin(folder, outside, turns.parse().unwrap_or(0)),
        ("hard-link", [from, to]) => hard_link(from, to),
        ("move-away", [path]) => move_away(path),
        ("system", paths) => any(paths.iter().map(|path| create_and_remove(path))),
        ("others-root", [path]) => others_root(path),
        ("own-root", [path]) => any([
            read(&format!("/proc/self/root{path}")),
            read(&format!("/proc/self/cwd/../../../../../../../..{path}")),
        ]),
        ("look-beyond", [path]) => any(beyond(path).map(|road| look(&road))),
        ("change-mode", [path]) => any(beyond(path).map(|road| change_mode(&road))),
        ("handle-of", [path]) => handle_of(path),
        ("by-handle", [kind, bytes]) => by_handle(kind, bytes),
        ("device-node", [kind, major, minor]) => device_node(kind, major, minor),
        ("disk", []) => disk(),
        ("naive-write", [folder, outside]) => naive_write(folder, outside),
        ("write-in-place", [path]) => write_in_place(path),
        _ => return None,
    })
}

pub(crate) fn read(path: &str) -> Attack {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(4_096)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What an attacker writes, so that a test finds it again.
pub(crate) const MARK: &[u8] = b"written by an attacker\n";

fn create(path: &str) -> Attack {
    if let Some(parent) = Path::new(path).parent() {
        let _ = std::fs::create_dir_all(parent);
    }
    std::fs::File::create_new(path)?.write_all(MARK)?;
    Ok(format!("created {path}"))
}

fn append(path: &str) -> Attack {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    file.write_all(MARK)?;
    Ok(format!("wrote {path}"))
}

fn create_and_remove(path: &str) -> Attack {
    std::fs::File::create_new(path)?;
    std::fs::remove_file(path)?;
    Ok(format!("created {path}"))
}

/// A folder, a link to somewhere else beside it, and what exchanges them in one step.
struct Exchange(CString, CString);

impl Exchange {
    fn new(folder: &str, outside: &str) -> io::Result<Self> {
        let link = format!("{folder}.link");
        std::fs::create_dir_all(folder)?;
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(outside, &link)?;
        Ok(Self(sys::path(folder)?, sys::path(&link)?))
    }

    fn turn(&self) -> io::Result<()> {
        let here = libc::AT_FDCWD;
        let exchange = libc::RENAME_EXCHANGE;
        call!(libc::SYS_renameat2, here, &self.0, here, &self.1, exchange)?;
        Ok(())
    }
}

/// Exchanges a folder and a link over and over, and writes through the name.
fn swap(folder: &str, outside: &str) -> Attack {
    let exchange = Exchange::new(folder, outside)?;
    let mut refused = None;
    for turn in 0..400 {
        exchange.turn()?;
        if let Err(error) = std::fs::write(format!("{folder}/swapped"), MARK) {
            refused = Some(error);
        }
        if Path::new(&format!("{outside}/swapped")).exists() {
            return Ok(format!("wrote outside in turn {turn}"));
        }
    }
    Err(refused.map_or_else(|| held("NOTHING_ARRIVED"), Failed::from))
}

/// The same for somebody else to write through.
fn spin(folder: &str, outside: &str, turns: usize) -> Attack {
    let exchange = Exchange::new(folder, outside)?;
    for _ in 0..turns {
        exchange.turn()?;
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    Ok(format!("{turns} turns"))
}

/// The control of a race: looks, waits, then trusts what it saw.
fn naive_write(folder: &str, outside: &str) -> Attack {
    for turn in 0..20_000 {
        if !std::fs::symlink_metadata(folder)?.is_dir() {
            std::thread::sleep(std::time::Duration::from_micros(50));
            continue;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
        std::fs::write(format!("{folder}/raced"), MARK)?;
        if Path::new(&format!("{outside}/raced")).exists() {
            return Ok(format!("wrote outside in turn {turn}"));
        }
    }
    Err(held("NEVER_WON"))
}

/// The control of file tools, which replace: this one keeps the file, its links and its modes.
fn write_in_place(path: &str) -> Attack {
    use std::os::unix::fs::MetadataExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)?;
    file.write_all(MARK)?;
    Ok(format!("mode {:o}", file.metadata()?.mode() & 0o7777))
}

fn hard_link(from: &str, to: &str) -> Attack {
    let through_a_handle = || -> Attack {
        let handle = std::fs::File::open(from)?;
        let by = sys::path(&format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
        let to = sys::path(to)?;
        let follow = libc::AT_SYMLINK_FOLLOW;
        let here = libc::AT_FDCWD;
        call!(libc::SYS_linkat, here, &by, here, &to, follow)?;
        Ok(String::new())
    };
    let plainly = || -> Attack {
        std::fs::hard_link(from, to)?;
        Ok(String::new())
    };
    plainly().or_else(|_| through_a_handle())?;
    let got = read(to);
    std::fs::remove_file(to)?;
    got
}

/// Puts something else in the place of a folder, as `git init` would not.
fn move_away(path: &str) -> Attack {
    let away = format!("{path}.away");
    std::fs::rename(path, &away)?;
    std::fs::create_dir(path)?;
    std::fs::write(format!("{path}/config"), MARK)?;
    Ok(format!("another {path}"))
}

/// Through the roots and folders of every other process there is.
fn others_root(path: &str) -> Attack {
    let own = std::process::id().to_string();
    let mut roads = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && name != own {
            roads.push(format!("/proc/{name}/root{path}"));
            roads.push(format!("/proc/{name}/cwd/../../../../../../../..{path}"));
        }
    }
    any(roads.iter().map(|road| read(road)))
}

/// Ways to a path that lead over what is above the root: nothing should be.
fn beyond(path: &str) -> [String; 4] {
    ["", "/..", "/dev/..", "/proc/self/root/.."].map(|road| format!("{road}{path}"))
}

/// That it is there, and how long it is: no rule about reading covers that.
fn look(path: &str) -> Attack {
    let found = std::fs::symlink_metadata(path)?;
    Ok(format!("{path} has {} bytes", found.len()))
}

/// No rule about writing covers this either.
fn change_mode(path: &str) -> Attack {
    let road = sys::path(path)?;
    call!(libc::SYS_fchmodat, libc::AT_FDCWD, &road, 0o646)?;
    Ok(format!("anybody may write {path}"))
}

/// What the kernel takes and gives for a file without a path.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    space: [u8; 128],
}

/// Not an attack: the handle of a file, for `by-handle` where its path cannot be seen.
fn handle_of(path: &str) -> Attack {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        space: [0; 128],
    };
    let mut mount = 0_i32;
    let here = libc::AT_FDCWD;
    let path = sys::path(path)?;
    let (handle_at, mount_at) = (sys::into(&mut handle), sys::into(&mut mount));
    call!(
        libc::SYS_name_to_handle_at,
        here,
        &path,
        handle_at,
        mount_at,
        0
    )?;
    let length = handle.bytes as usize;
    let hex = handle.space.iter().take(length);
    let hex: String = hex.map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{} {hex}", handle.kind))
}

fn by_handle(kind: &str, bytes: &str) -> Attack {
    let wrong = || held("BAD_ARGUMENT");
    let mut handle = Handle {
        bytes: (bytes.len() / 2) as u32,
        kind: kind.parse().map_err(|_| wrong())?,
        space: [0; 128],
    };
    for (place, index) in handle.space.iter_mut().zip((0..bytes.len()).step_by(2)) {
        let digits = bytes.get(index..index + 2).ok_or_else(wrong)?;
        *place = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    // Any descriptor on the same file system will do.
    let anchor = std::fs::File::open(".")?;
    let anchor = anchor.as_raw_fd();
    let fd = call!(
        libc::SYS_open_by_handle_at,
        anchor,
        at(&handle),
        libc::O_RDONLY
    )?;
    let mut text = String::new();
    std::fs::File::from(sys::owned(fd)).read_to_string(&mut text)?;
    Ok(text)
}

/// A node of a device of one's own making, opened.
fn device_node(kind: &str, major: &str, minor: &str) -> Attack {
    let kind = match kind {
        "block" => libc::S_IFBLK,
        _ => libc::S_IFCHR,
    };
    let number = |text: &str| text.parse::<u32>().map_err(io::Error::other);
    let device = libc::makedev(number(major)?, number(minor)?);
    let path = sys::path("palyra-node")?;
    let _ = std::fs::remove_file("palyra-node");
    call!(
        libc::SYS_mknodat,
        libc::AT_FDCWD,
        &path,
        kind | 0o600,
        device
    )?;
    let opened = std::fs::File::open("palyra-node");
    std::fs::remove_file("palyra-node")?;
    opened.map_err(absent_without)?;
    Ok("opened".to_owned())
}

/// Any disk of the host under its usual name.
fn disk() -> Attack {
    let names = std::fs::read_dir("/sys/class/block").map_err(absent_without)?;
    let names = names
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    any(names.iter().map(|name| -> Attack {
        std::fs::File::open(format!("/dev/{name}")).map_err(absent_without)?;
        Ok(format!("opened /dev/{name}"))
    }))
}
