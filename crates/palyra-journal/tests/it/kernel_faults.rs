//! Disks that the kernel itself fails: an ext4 on a loop device whose backing store runs out of
//! room, so that a sync fails and pages are lost, and one that is forced to be read-only.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use palyra_core::entry::Stream;
use palyra_core::{Blob, BlobKind};
use palyra_journal::verify::{Trust, Verdict, verify};
use palyra_journal::{Append, Expected, JournalError, JournalState, JournalStore};

use crate::support::{clock, keys, not_run, started, to};

/// A small filesystem in a file on a small tmpfs.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None` for those who may not mount, or cannot make one.
    fn new(errors: &str) -> Option<Self> {
        let disk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for folder in [disk.store(), disk.mounted()] {
            std::fs::create_dir(folder).unwrap();
        }
        let store = disk.store();
        let made = run(
            "mount",
            &["-t", "tmpfs", "-o", "size=40m,mode=700", "tmpfs"],
            &[&store],
        ) && std::fs::File::create(disk.image())
            .unwrap()
            .set_len(64 << 20)
            .is_ok()
            && run(
                "mkfs.ext4",
                &["-q", "-m", "0", "-E", "nodiscard"],
                &[&disk.image()],
            )
            && disk.mount(&disk.image(), errors);
        made.then_some(disk)
    }

    fn mount(&self, image: &Path, errors: &str) -> bool {
        let options = format!("loop,errors={errors}");
        run("mount", &["-o", &options], &[image, &self.mounted()])
    }

    /// What is on the disk, mounted in the place of what was there.
    fn mount_anew(&self) {
        assert!(run("umount", &["-l"], &[&self.mounted()]));
        let mended = self.folder.path().join("mended");
        std::fs::copy(self.image(), &mended).unwrap();
        // It says whether there was anything to mend.
        let _code = run("e2fsck", &["-fy"], &[&mended]);
        assert!(self.mount(&mended, "continue"));
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn image(&self) -> PathBuf {
        self.store().join("image")
    }

    fn mounted(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn journal(&self) -> PathBuf {
        self.mounted().join("journal.db")
    }

    /// What is on the disk now, whatever the kernel remembers: as after a cut of the power.
    fn after_a_cut(&self) -> Option<Self> {
        let copy = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for folder in [copy.store(), copy.mounted()] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::copy(self.image(), copy.image()).unwrap();
        copy.mount(&copy.image(), "continue").then_some(copy)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l"], &[&self.mounted()]);
        run("umount", &["-l"], &[&self.store()]);
    }
}

fn run(program: &str, arguments: &[&str], paths: &[&Path]) -> bool {
    #[expect(clippy::disallowed_methods, reason = "makes the disk that fails")]
    let mut command = Command::new(program);
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = quiet.args(arguments).args(paths).status();
    status.is_ok_and(|status| status.success())
}

fn open(file: &Path) -> JournalStore {
    JournalStore::open(file, Vec::new(), clock(), keys()).unwrap()
}

async fn append(journal: &JournalStore) -> Result<u64, JournalError> {
    let batch = Append {
        streams: vec![to(Stream::Daemon, Expected::Any, vec![started("x")])],
        blobs: vec![Blob::new(BlobKind::Output, vec![7; 16 << 10])],
    };
    Ok(journal.append(batch).await?.last_seq)
}

/// Appends until the disk refuses; gives the last place that was durable.
async fn append_until_refused(journal: &JournalStore) -> (u64, JournalError) {
    loop {
        let durable = journal.head();
        if let Err(error) = append(journal).await {
            return (durable, error);
        }
    }
}

async fn until_writable(journal: &JournalStore) {
    let mut looks = 0;
    while journal.state() != JournalState::Writable {
        let state = journal.state();
        assert!(looks < 2_000, "it does not recover by itself: {state:?}");
        looks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn verified(file: &Path, journal: &JournalStore) {
    let trust = Trust::nobody().key(journal.key().unwrap());
    let trust = trust.pinned(journal.checkpoint().unwrap()).unwrap();
    let report = verify(file, &trust).unwrap();
    assert_eq!(report.verdict(), Verdict::Verified, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_the_kernel_fails_loses_nothing_and_is_mended() {
    let Some(disk) = Disk::new("continue") else {
        return not_run(
            "a_sync_that_the_kernel_fails_loses_nothing_and_is_mended",
            "needs root, a loop device and mkfs.ext4",
        );
    };
    let journal = open(&disk.journal());
    for _ in 0..10 {
        append(&journal).await.unwrap();
    }
    let cut = disk.after_a_cut().unwrap();
    assert_eq!(open(&cut.journal()).head(), 10, "control");
    let ballast = disk.store().join("ballast");
    let filled = std::fs::write(&ballast, vec![1; 64 << 20]);
    assert!(filled.is_err(), "the backing store must be full");
    let (durable, error) = append_until_refused(&journal).await;
    let unsynced = matches!(error, JournalError::Unsynced(_) | JournalError::Io(_));
    assert!(unsynced, "{error:?}");
    assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
    let read = journal.read(0, usize::MAX).unwrap().len() as u64;
    assert_eq!(read, durable, "reading goes on");
    // The disk as it is now, without what the kernel remembers.
    let cut = disk.after_a_cut().unwrap();
    let found = open(&cut.journal()).head();
    assert!(found >= durable, "{found} of {durable}");

    // The filesystem gave up with the sync, so the disk is mounted again.
    std::fs::remove_file(&ballast).unwrap();
    disk.mount_anew();
    until_writable(&journal).await;
    assert!(append(&journal).await.unwrap() > durable);
    verified(&disk.journal(), &journal);
    let head = journal.head();
    drop(journal);
    assert_eq!(open(&disk.journal()).head(), head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_became_read_only_stops_it_until_it_is_mounted_again() {
    let disk = Disk::new("remount-ro");
    let trigger = disk.as_ref().and_then(|disk| {
        let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
        let here = disk.mounted().to_str()?.to_owned();
        let line = mounts.lines().find(|line| line.contains(&here))?;
        let device = Path::new(line.split(' ').next()?).file_name()?.to_owned();
        let trigger = Path::new("/sys/fs/ext4")
            .join(device)
            .join("trigger_fs_error");
        trigger.exists().then_some(trigger)
    });
    let (Some(disk), Some(trigger)) = (disk, trigger) else {
        return not_run(
            "a_disk_that_became_read_only_stops_it_until_it_is_mounted_again",
            "needs root, a loop device, mkfs.ext4 and a kernel that can pretend an error",
        );
    };
    let journal = open(&disk.journal());
    for _ in 0..10 {
        append(&journal).await.unwrap();
    }
    std::fs::write(trigger, "x").unwrap();
    let (durable, error) = append_until_refused(&journal).await;
    assert_eq!(durable, 10, "{error}");
    for _ in 0..3 {
        let error = append(&journal).await.unwrap_err();
        let JournalState::Unwritable { why, next_step } = journal.state() else {
            panic!("it does not show: {error}");
        };
        assert!(
            !why.is_empty() && next_step.contains("palyra status"),
            "{why}; {next_step}"
        );
        let read = journal.read(0, usize::MAX).unwrap().len() as u64;
        assert_eq!(read, durable, "reading goes on");
    }
    // The only way back from a forced read-only mount is another one.
    disk.mount_anew();
    until_writable(&journal).await;
    assert_eq!(append(&journal).await.unwrap(), durable + 1);
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, durable + 1);
    verified(&disk.journal(), &journal);
    drop(journal);
    assert_eq!(open(&disk.journal()).head(), durable + 1);
}
