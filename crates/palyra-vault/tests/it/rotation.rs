//! The key is changed, and whatever happens on the way, everything can be read afterwards.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use palyra_core::{SecretRef, SecretValue, Timestamp};
use palyra_vault::keystore::KeyFile;
use palyra_vault::{
    BlobBackend, Latest, Meta, Own, SqliteBlobs, Step, Stored, Vault, VaultError, Write,
};

use crate::support::{folder, get, open, put, refused};

const SECRETS: usize = 600;

fn filled(folder: &Path) -> Vault {
    let vault = open(folder).unwrap();
    let new: Vec<_> = (0..SECRETS)
        .map(|number| {
            crate::support::new(
                &format!("s{number:04}"),
                format!("value {number}").as_bytes(),
            )
        })
        .collect();
    vault.put_all(&new, crate::support::NOW).unwrap();
    let own = [("own.a", SecretValue::new(vec![7; 32]))];
    vault.keep_own(&own).unwrap();
    vault
}

fn all_readable(vault: &Vault) {
    for number in 0..SECRETS {
        let value = get(vault, &format!("s{number:04}")).unwrap();
        assert_eq!(value, format!("value {number}"));
    }
    assert_eq!(vault.own("own.a").unwrap().unwrap().expose(), [7; 32]);
}

fn lines(folder: &Path) -> usize {
    let text = std::fs::read_to_string(folder.join("vault.key")).unwrap();
    text.lines().count()
}

/// Starts as a daemon does.
fn start(folder: &Path) -> Vault {
    let vault = open(folder).unwrap();
    vault.settle(&mut |_| ControlFlow::Continue(())).unwrap();
    vault
}

#[test]
fn a_new_key_opens_everything_and_the_old_one_goes_at_the_next_start() {
    let folder = folder();
    let vault = filled(folder.path());
    let before = vault.status().unwrap().unwrap();
    let done = vault.rotate(&mut |_| ControlFlow::Continue(())).unwrap();
    let done = done.unwrap();
    assert_eq!(done.previous, before.key);
    all_readable(&vault);
    put(&vault, "s0000", "value 0");
    assert_eq!(lines(folder.path()), 2, "both are kept");
    drop(vault);
    let vault = start(folder.path());
    all_readable(&vault);
    let after = vault.status().unwrap().unwrap();
    assert_eq!(
        (after.key, after.previous, after.pending),
        (done.key, None, None)
    );
    assert_eq!(lines(folder.path()), 1);
}

/// The steps at which the child kills itself.
const STEPS: [&str; 8] = [
    "made",
    "begun",
    "batch1",
    "batch2",
    "batch3",
    "activated",
    "forgotten",
    "settled",
];

fn name(step: Step, batches: &mut usize) -> String {
    match step {
        Step::KeyMade => "made".to_owned(),
        Step::Begun => "begun".to_owned(),
        Step::Rewrapped(_) => {
            *batches += 1;
            format!("batch{batches}")
        }
        Step::Activated => "activated".to_owned(),
        Step::OldKeyForgotten => "forgotten".to_owned(),
        Step::Settled => "settled".to_owned(),
    }
}

/// Not a test by itself: changes the key in the folder it is told, and is killed where it is told.
#[test]
fn child() {
    let Ok(told) = std::env::var("PALYRA_VAULT_CHILD") else {
        return;
    };
    let (step, folder) = told.split_once(' ').unwrap();
    let mut batches = 0;
    let mut watch = |at: Step| {
        if name(at, &mut batches) == step {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        ControlFlow::Continue(())
    };
    let vault = open(Path::new(folder)).unwrap();
    vault.rotate(&mut watch).unwrap();
    drop(vault);
    let vault = open(Path::new(folder)).unwrap();
    vault.settle(&mut watch).unwrap();
}

#[test]
fn killed_at_any_step_everything_is_readable_and_the_change_is_finished() {
    for step in STEPS {
        let folder = folder();
        drop(filled(folder.path()));
        let own = std::env::current_exe().unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "this program itself, to be killed"
        )]
        let ended = std::process::Command::new(own)
            .args(["--exact", "rotation::child"])
            .env(
                "PALYRA_VAULT_CHILD",
                format!("{step} {}", folder.path().display()),
            )
            .output()
            .unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(
            ended.status.signal(),
            Some(9),
            "{step}: it was killed there"
        );
        let vault = open(folder.path()).unwrap();
        all_readable(&vault);
        put(&vault, "new", "value");
        drop(vault);
        // One start goes on with it, the next forgets the old key.
        drop(start(folder.path()));
        let vault = start(folder.path());
        all_readable(&vault);
        assert_eq!(get(&vault, "new").unwrap(), "value");
        let status = vault.status().unwrap().unwrap();
        assert_eq!((status.pending, status.previous), (None, None), "{step}");
    }
}

#[test]
fn without_one_of_the_two_keys_nothing_is_lost() {
    let folder = folder();
    let vault = filled(folder.path());
    let mut batches = 0;
    let stop = &mut |step| match name(step, &mut batches).as_str() {
        "batch1" => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert!(vault.rotate(stop).unwrap().is_none());
    drop(vault);
    let path = folder.path().join("vault.key");
    let both = std::fs::read_to_string(&path).unwrap();
    for line in both.lines() {
        std::fs::write(&path, line).unwrap();
        let error = refused(open(folder.path()));
        assert_eq!(error.code(), "keystore_no_such_key", "{error}");
    }
    std::fs::write(&path, &both).unwrap();
    all_readable(&start(folder.path()));
}

/// A disk that is full after so many commits.
struct Filling {
    blobs: SqliteBlobs,
    left: Arc<AtomicUsize>,
}

impl BlobBackend for Filling {
    fn meta(&self) -> Result<Option<Meta>, VaultError> {
        self.blobs.meta()
    }
    fn commit(&mut self, meta: &Meta, writes: &[Write<'_>]) -> Result<(), VaultError> {
        if self.left.load(Ordering::SeqCst) == 0 {
            return Err(VaultError::Full);
        }
        self.left.fetch_sub(1, Ordering::SeqCst);
        self.blobs.commit(meta, writes)
    }
    fn latest(&self, secret: &SecretRef) -> Result<Option<Latest>, VaultError> {
        self.blobs.latest(secret)
    }
    fn get(&self, secret: &SecretRef, version: u64) -> Result<Option<Stored>, VaultError> {
        self.blobs.get(secret, version)
    }
    fn versions(&self, secret: &SecretRef) -> Result<Vec<Stored>, VaultError> {
        self.blobs.versions(secret)
    }
    fn list(&self, after: Option<&SecretRef>, most: usize) -> Result<Vec<Stored>, VaultError> {
        self.blobs.list(after, most)
    }
    fn each(
        &self,
        see: &mut dyn FnMut(Stored) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        self.blobs.each(see)
    }
    fn each_latest(
        &self,
        see: &mut dyn FnMut(&SecretRef, Latest) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        self.blobs.each_latest(see)
    }
    fn owned(&self) -> Result<Vec<Own>, VaultError> {
        self.blobs.owned()
    }
    fn page(&self, after: Option<&Stored>, most: usize) -> Result<Vec<Stored>, VaultError> {
        self.blobs.page(after, most)
    }
    fn ended(&self, now: Timestamp, most: usize) -> Result<Vec<Stored>, VaultError> {
        self.blobs.ended(now, most)
    }
}

#[test]
fn a_disk_that_fills_up_on_the_way_stops_it_and_loses_nothing() {
    for commits in 0..5 {
        let folder = folder();
        drop(filled(folder.path()));
        let left = Arc::new(AtomicUsize::new(commits));
        let blobs = Filling {
            blobs: SqliteBlobs::open(folder.path()).unwrap(),
            left: Arc::clone(&left),
        };
        let vault = Vault::open(Box::new(blobs)).unwrap();
        vault.unlock(Arc::new(KeyFile::new(folder.path()))).unwrap();
        let error = refused(vault.rotate(&mut |_| ControlFlow::Continue(())));
        assert_eq!(error.code(), "vault_full");
        all_readable(&vault);
        left.store(usize::MAX, Ordering::SeqCst);
        vault.settle(&mut |_| ControlFlow::Continue(())).unwrap();
        all_readable(&vault);
        drop(vault);
        all_readable(&start(folder.path()));
    }
}
