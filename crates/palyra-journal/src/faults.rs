//! A disk that fails on demand, and a record of everything that was done to it.
//!
//! [`vfs`] stands between SQLite and its files. For a folder that is watched, every write, cut,
//! removal and sync is recorded, and each can be refused. From the record, [`image`] makes what a
//! disk may hold after the power was cut at any point: what was synced, and any part of the rest.

mod image;
mod vfs;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

pub(crate) use image::{Image, Kept, random};

/// One of a journal's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Main,
    Log,
    Rollback,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Log, Self::Rollback];

    pub(crate) const fn file_name(self) -> &'static str {
        match self {
            Self::Main => "journal.db",
            Self::Log => "journal.db-wal",
            Self::Rollback => "journal.db-journal",
        }
    }
}

/// Something that was done, in the order in which it was.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write(Part, u64, Arc<[u8]>),
    Truncate(Part, u64),
    /// Removed; and whether the folder was synced after it.
    Remove(Part, bool),
    /// What was done to this part before the given place in the record is on disk.
    Synced(Part, usize),
    /// A sync failed. The kernel calls clean what it could not write: a later sync does not.
    Unsynced(Part, usize),
    /// What was not synced is gone: whoever reads sees what is on disk.
    Forgotten(Part),
    /// Which files there are is on disk.
    SyncedFolder,
    /// An appender was told something; what is the test's own.
    Told(usize),
}

/// How a refusal is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Eio,
    Enospc,
    Erofs,
}

impl Code {
    pub(crate) fn to_io(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Eio => 5,
            Self::Enospc => 28,
            Self::Erofs => 30,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Write,
    Sync,
    Read,
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) on: On,
    pub(crate) part: Part,
    /// So many times it goes well first.
    pub(crate) skip: u32,
    /// And so many times it does not.
    pub(crate) times: u32,
    pub(crate) code: Code,
    /// After a failed sync the kernel also drops the pages: whoever reads gets what was there
    /// before.
    pub(crate) forgets: bool,
}

/// A folder that is watched.
pub(crate) struct Disk {
    folder: PathBuf,
    record: Mutex<Record>,
    syncing: Mutex<()>,
}

#[derive(Default)]
struct Record {
    ops: Vec<Op>,
    faults: Vec<Fault>,
    /// Reads of the main file come back with other bytes.
    garbles: bool,
    /// How often a sync of each part failed. Every descriptor hears of it once.
    failures: HashMap<Part, u64>,
    /// What descriptors that are not SQLite's have heard.
    heard: HashMap<RawFd, u64>,
    /// The next sync says that it began, and waits.
    stalls: Option<Stall>,
    /// The next sync that fails says so, and waits before its caller hears it.
    holds: Option<Stall>,
}

/// Says that something happened, and waits until it may go on.
struct Stall {
    happened: SyncSender<()>,
    may_go_on: Receiver<()>,
}

impl Stall {
    fn new() -> (Self, Receiver<()>, SyncSender<()>) {
        let ((happened, has_happened), (go_on, may_go_on)) = (sync_channel(1), sync_channel(1));
        let stall = Self {
            happened,
            may_go_on,
        };
        (stall, has_happened, go_on)
    }

    fn wait(self) {
        self.happened.send(()).unwrap();
        self.may_go_on.recv().unwrap();
    }
}

/// Held while something is written and recorded.
static WRITING: RwLock<()> = RwLock::new(());

static WATCHED: Mutex<Vec<Arc<Disk>>> = Mutex::new(Vec::new());

/// Watches a folder until it is dropped.
pub(crate) struct Watch(Arc<Disk>);

impl std::ops::Deref for Watch {
    type Target = Arc<Disk>;

    fn deref(&self) -> &Arc<Disk> {
        &self.0
    }
}

impl Watch {
    pub(crate) fn begin(folder: &Path) -> Self {
        vfs::register();
        let disk = Arc::new(Disk {
            folder: folder.canonicalize().unwrap(),
            record: Mutex::default(),
            syncing: Mutex::default(),
        });
        all().push(Arc::clone(&disk));
        Self(disk)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        all().retain(|disk| !Arc::ptr_eq(disk, &self.0));
    }
}

/// Writes and records it as one.
fn writing() -> RwLockReadGuard<'static, ()> {
    WRITING.read().unwrap_or_else(PoisonError::into_inner)
}

fn all() -> MutexGuard<'static, Vec<Arc<Disk>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One file of a watched folder.
pub(crate) struct Watched {
    disk: Arc<Disk>,
    part: Part,
    descriptor: Descriptor,
}

/// Who is told that pages were lost.
enum Descriptor {
    /// SQLite's own, which has heard of so many failures.
    Sqlite(AtomicU64),
    /// One of ours.
    Own(RawFd),
}

/// The file, if it is one of a watched folder.
pub(crate) fn watched(file: &File) -> Option<Watched> {
    let descriptor = file.as_raw_fd();
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(Watched {
        descriptor: Descriptor::Own(descriptor),
        ..watched_at(&path)?
    })
}

/// A descriptor was opened: it hears of what fails from now on.
pub(crate) fn opened(file: &File) {
    if let Some(watched) = watched(file) {
        let mut record = watched.disk.record();
        let failures = record.failures.get(&watched.part).copied().unwrap_or(0);
        record.heard.insert(file.as_raw_fd(), failures);
    }
}

/// The folder of this file was synced.
pub(crate) fn synced_folder(file: &Path) {
    if let Some(watched) = watched_at(file) {
        watched.disk.note(Op::SyncedFolder);
    }
}

fn watched_at(path: &Path) -> Option<Watched> {
    let folder = path.parent()?.canonicalize().ok()?;
    let name = path.file_name()?.to_str()?;
    let part = Part::ALL
        .into_iter()
        .find(|part| part.file_name() == name)?;
    let disk = all().iter().find(|disk| disk.folder == folder).cloned()?;
    let heard = disk.record().failures.get(&part).copied();
    Some(Watched {
        disk,
        part,
        descriptor: Descriptor::Sqlite(AtomicU64::new(heard.unwrap_or(0))),
    })
}

impl Watched {
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Code> {
        self.disk.allow(On::Write, self.part)?;
        self.disk.note(Op::Write(self.part, offset, bytes.into()));
        Ok(())
    }

    pub(crate) fn truncate(&self, length: u64) -> Result<(), Code> {
        self.disk.allow(On::Write, self.part)?;
        self.disk.note(Op::Truncate(self.part, length));
        Ok(())
    }

    /// Nothing is really synced: the power is cut in memory only.
    pub(crate) fn sync(&self) -> Result<(), Code> {
        let stalls = self.disk.record().stalls.take();
        if let Some(stall) = stalls {
            stall.wait();
        }
        let outcome = self.sync_in_turn();
        if outcome.is_err()
            && let Some(stall) = self.disk.take_hold()
        {
            stall.wait();
        }
        outcome
    }

    /// One at a time, so that of two the later one hears what the earlier one lost.
    fn sync_in_turn(&self) -> Result<(), Code> {
        let _syncing = self.disk.syncing.lock();
        let upto = self.disk.length();
        let allowed = self.disk.allow(On::Sync, self.part);
        match allowed.and_then(|()| self.hears_nothing()) {
            Ok(()) => {
                self.disk.note(Op::Synced(self.part, upto));
                Ok(())
            }
            Err(fault) => {
                let _told = self.hears_nothing();
                self.disk.note(Op::Unsynced(self.part, upto));
                Err(fault)
            }
        }
    }

    /// Whether no other descriptor's sync failed since this one's last.
    fn hears_nothing(&self) -> Result<(), Code> {
        let mut record = self.disk.record();
        let failures = record.failures.get(&self.part).copied().unwrap_or(0);
        let heard = match &self.descriptor {
            Descriptor::Sqlite(heard) => heard.swap(failures, Ordering::SeqCst),
            // One that was opened since has nothing to hear.
            Descriptor::Own(own) => record.heard.insert(*own, failures).unwrap_or(failures),
        };
        (heard == failures).then_some(()).ok_or(Code::Eio)
    }

    fn read(&self, bytes: &mut [u8]) -> Result<(), Code> {
        self.disk.allow(On::Read, self.part)?;
        if self.part == Part::Main && self.disk.record().garbles {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        Ok(())
    }

    fn remove(&self, synced: bool) {
        self.disk.note(Op::Remove(self.part, synced));
    }
}

impl Disk {
    /// Something goes wrong from now on.
    pub(crate) fn fail(&self, fault: Fault) {
        self.record().faults.push(fault);
    }

    /// From now on the main file reads as something else, or as what it is again.
    pub(crate) fn garble(&self, garbles: bool) {
        self.record().garbles = garbles;
    }

    /// The next sync tells when it began and goes on when it is told to; others overtake it.
    pub(crate) fn stall_next_sync(&self) -> (Receiver<()>, SyncSender<()>) {
        let (stall, has_begun, go_on) = Stall::new();
        self.record().stalls = Some(stall);
        (has_begun, go_on)
    }

    /// The next sync that fails tells so, and its caller hears it when it is told to go on.
    pub(crate) fn hold_next_failure(&self) -> (Receiver<()>, SyncSender<()>) {
        let (stall, has_failed, go_on) = Stall::new();
        self.record().holds = Some(stall);
        (has_failed, go_on)
    }

    fn take_hold(&self) -> Option<Stall> {
        self.record().holds.take()
    }

    /// Everything goes well again.
    pub(crate) fn heal(&self) {
        let mut record = self.record();
        record.faults.clear();
        record.garbles = false;
    }

    /// Notes that somebody was told something.
    pub(crate) fn told(&self, what: usize) {
        self.note(Op::Told(what));
    }

    /// Everything that was done so far.
    pub(crate) fn ops(&self) -> Vec<Op> {
        self.record().ops.clone()
    }

    fn length(&self) -> usize {
        self.record().ops.len()
    }

    fn note(&self, op: Op) {
        self.record().ops.push(op);
    }

    fn allow(&self, on: On, part: Part) -> Result<(), Code> {
        let mut record = self.record();
        let meant = |fault: &Fault| fault.on == on && fault.part == part;
        let Some(fault) = record.faults.iter_mut().find(|fault| meant(fault)) else {
            return Ok(());
        };
        if fault.skip > 0 {
            fault.skip -= 1;
            return Ok(());
        }
        fault.times = fault.times.saturating_sub(1);
        let fault = *fault;
        record.faults.retain(|fault| fault.times > 0);
        if on == On::Sync {
            *record.failures.entry(part).or_default() += 1;
        }
        if fault.forgets {
            // A writer holds that lock and then wants the record.
            drop(record);
            let _nobody_writes = WRITING.write().unwrap_or_else(PoisonError::into_inner);
            let mut record = self.record();
            let held = Image::after(&record.ops).survives(Kept::Synced, &mut 1);
            let file = self.folder.join(part.file_name());
            std::fs::write(file, held.get(&part).map_or(&[][..], Vec::as_slice)).unwrap();
            record.ops.push(Op::Forgotten(part));
        }
        Err(fault.code)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
