//! A disk that is really full: nothing executes, nothing is lost, and it recovers by itself.

use std::path::Path;
use std::process::Command;

use palyra_core::entry::Stream;
use palyra_core::{Blob, BlobKind};
use palyra_journal::{Append, Expected, JournalError, JournalState, JournalStore};

use crate::support::{Counting, clock, keys, started, to};

/// A small filesystem of its own, for those who may mount one.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = run(
            "mount",
            &["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"],
            folder.path(),
        );
        mounted.then_some(Self { folder })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], self.folder.path());
    }
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    #[expect(clippy::disallowed_methods, reason = "mounts the disk that gets full")]
    let mut command = Command::new(program);
    let status = command.args(arguments).arg(folder).status();
    status.is_ok_and(|status| status.success())
}

async fn append(journal: &JournalStore, bytes: usize) -> Result<u64, JournalError> {
    let batch = Append {
        streams: vec![to(Stream::Daemon, Expected::Any, vec![started("x")])],
        blobs: vec![Blob::new(BlobKind::Output, vec![7; bytes])],
    };
    Ok(journal.append(batch).await?.last_seq)
}

#[tokio::test]
async fn a_full_disk_is_an_error_until_there_is_space_again() {
    let Some(disk) = SmallDisk::mount() else {
        println!("not run: needs root to mount a small disk; the capped file covers the rest");
        return;
    };
    let ballast = disk.folder.path().join("ballast");
    std::fs::write(&ballast, vec![0; 512 << 10]).unwrap();
    let file = disk.folder.path().join("journal.db");
    let journal =
        JournalStore::open(&file, vec![Box::new(Counting("counts"))], clock(), keys()).unwrap();

    let mut acknowledged = 0;
    let error = loop {
        match append(&journal, 16 << 10).await {
            Ok(place) => acknowledged = place,
            Err(error) => break error,
        }
    };
    assert!(acknowledged > 0);
    assert!(matches!(error, JournalError::Full(_)), "{error:?}");
    assert!(error.remedy().contains("free disk space"));
    let JournalState::Unwritable { why } = journal.state() else {
        panic!("a full disk does not show");
    };
    assert_eq!(why, "there is no space left on the journal's disk");
    assert_eq!(journal.head(), acknowledged);
    let entries = journal.read(0, usize::MAX).unwrap();
    assert_eq!(entries.len() as u64, acknowledged, "reading goes on");

    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(append(&journal, 1).await.unwrap(), acknowledged + 1);
    assert_eq!(journal.state(), JournalState::Writable);
    let row = journal.row("counts", "daemon").unwrap().unwrap();
    assert_eq!(row.value, (acknowledged + 1).to_string().into_bytes());
    drop(journal);
    let journal = JournalStore::open(&file, Vec::new(), clock(), keys()).unwrap();
    assert_eq!(journal.head(), acknowledged + 1);
}
