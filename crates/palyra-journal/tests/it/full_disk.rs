//! A disk that is really full: nothing executes, nothing is lost, and it recovers by itself.

use std::path::Path;
use std::process::Command;

use palyra_core::corridor::{Admits as _, Intent};
use palyra_core::entry::{Answer, Stream};
use palyra_core::{Blob, BlobKind, DenialCode, Digest, DigestKey, PlanDigest};
use palyra_journal::{Append, CallRecorder, Expected, JournalError, JournalState, JournalStore};

use crate::support::{Counting, call, clock, keys, not_run, started, to};

/// A small filesystem of its own, for those who may mount one.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "tmpfs",
            ],
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
    let Some(disk) = SmallDisk::mount("1m") else {
        return not_run(
            "a_full_disk_is_an_error_until_there_is_space_again",
            "needs root to mount a small disk",
        );
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
    let JournalState::Unwritable { why, .. } = journal.state() else {
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

/// A call that is refused for want of space is recorded as refused: room was kept for that.
#[tokio::test]
async fn a_denial_for_want_of_space_is_in_the_journal() {
    let Some(disk) = SmallDisk::mount("4m") else {
        return not_run(
            "a_denial_for_want_of_space_is_in_the_journal",
            "needs root to mount a small disk",
        );
    };
    let file = disk.folder.path().join("journal.db");
    let reserve = disk.folder.path().join("journal.db-reserve");
    let journal = JournalStore::open(&file, Vec::new(), clock(), keys()).unwrap();
    append(&journal, 1).await.unwrap();
    assert!(reserve.metadata().unwrap().len() >= 128 << 10);
    // The disk fills up with something else, to the last byte.
    let ballast = disk.folder.path().join("ballast");
    let filled = std::fs::write(&ballast, vec![0; 8 << 20]);
    assert!(filled.is_err(), "the disk must be full");

    let digest = DigestKey::from_bytes([1; 32]).call_digest(&[]);
    let mut refused = 0;
    while refused < 15 {
        let id = call();
        let plan = PlanDigest(Digest::of(b"plan"));
        let plan = DigestKey::from_bytes([1; 32]).plan_seal(&id, &plan);
        let mut recorder = CallRecorder::new(journal.clone(), id.clone(), clock());
        let facts = Blob::new(BlobKind::Facts, vec![1; 100]);
        recorder.decided(Answer::Permit, Vec::new(), "v1".to_owned(), digest, facts);
        let intent = Intent {
            call: &id,
            digest: &digest,
            plan: &plan,
            grant: None,
        };
        let admitted = recorder.admit(intent).await;
        // The log has room for some in advance.
        let Err(denial) = admitted else { continue };
        assert_eq!(denial.code, DenialCode::JournalUnavailable);
        assert!(denial.reason.contains("no space left"), "{denial:?}");
        recorder.close(denial).await.unwrap();
        let entries = journal.read_stream(&Stream::Call(id)).unwrap();
        let kinds: Vec<_> = entries.iter().map(|it| it.entry.kind()).collect();
        assert_eq!(kinds, ["decided", "closed"]);
        assert!(matches!(journal.state(), JournalState::Unwritable { .. }));
        refused += 1;
    }
    assert!(!reserve.exists(), "the room was given up");

    std::fs::remove_file(&ballast).unwrap();
    // By itself, without anybody appending.
    while journal.state() != JournalState::Writable {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(reserve.exists(), "and is kept again");
    append(&journal, 16 << 10).await.unwrap();
}
