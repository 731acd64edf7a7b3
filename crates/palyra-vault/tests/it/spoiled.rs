//! A file cut at any byte, or with any bit flipped: one clear error, or everything as it was. Nothing
//! else is ever given back, and nothing is written over what could still be mended.
//!
//! `./test` looks at every byte that means something; `PALYRA_VAULT_SPOILS=all` (`make fuzz`) at every
//! byte and every bit.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::attacks::sample;
use crate::support::{close, get, open};

/// A vault's two files, as they should be.
struct Whole {
    file: Vec<u8>,
    key: Vec<u8>,
}

impl Whole {
    fn read() -> Self {
        let sample = sample();
        let read = |name: &str| std::fs::read(sample.path().join(name)).unwrap();
        Self {
            file: read("vault.db"),
            key: read("vault.key"),
        }
    }

    /// Whether the vault with this file is whole; otherwise it is refused, for a reason.
    fn survives(&self, folder: &Path, file: &[u8], what: &str) -> bool {
        for name in ["vault.db-wal", "vault.db-shm", "vault.db-journal"] {
            let _none = std::fs::remove_file(folder.join(name));
        }
        write(folder, "vault.key", &self.key);
        write(folder, "vault.db", file);
        let whole = match open(folder) {
            Err(error) => {
                let said = format!("{error}: {}", error.remedy());
                assert!(
                    !error.to_string().is_empty() && !error.remedy().is_empty(),
                    "{what}"
                );
                assert!(!said.contains("second of a"), "{what}: {said}");
                let left = std::fs::read(folder.join("vault.db")).unwrap();
                assert!(left == file, "{what}: what is refused is left as it is");
                false
            }
            Ok(vault) => {
                let own = |name: &str| vault.own(name).unwrap().map(|key| key.expose().to_vec());
                match (get(&vault, "a"), get(&vault, "agent:x/b")) {
                    (Ok(a), Ok(b)) => {
                        let both = (a.as_str(), b.as_str());
                        assert_eq!(both, ("second of a", "only one of b"), "{what}");
                        assert_eq!(own("own.a"), Some(vec![7; 32]), "{what}");
                        assert_eq!(own("own.b"), Some(vec![8; 32]), "{what}");
                        true
                    }
                    // An index that leads nowhere: told, and nothing else is given.
                    (Err(error), _) | (_, Err(error)) => {
                        assert!(!error.remedy().is_empty(), "{what}: {error}");
                        false
                    }
                }
            }
        };
        let key = std::fs::read(folder.join("vault.key")).unwrap();
        assert_eq!(key, self.key, "{what}: no new vault took its place");
        whole
    }
}

/// Tries every case, some at a time; how many left it whole.
fn try_all(cases: &[usize], one: impl Fn(usize, &Path) -> bool + Sync) -> usize {
    let (next, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = std::thread::available_parallelism().map_or(2, |it| it.get().min(8));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let folder = tempfile::tempdir_in(memory()).unwrap();
                close(folder.path());
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    whole.fetch_add(usize::from(one(*case, folder.path())), Ordering::Relaxed);
                }
            });
        }
    });
    whole.into_inner()
}

/// A file system without a disk: nothing here is about durability.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    match memory.is_dir() {
        true => memory,
        false => std::env::temp_dir(),
    }
}

fn every_one() -> bool {
    std::env::var("PALYRA_VAULT_SPOILS").is_ok_and(|which| which == "all")
}

#[test]
fn a_file_cut_anywhere_is_refused_or_whole() {
    let whole = Whole::read();
    let length = whole.file.len();
    let meant = |cut: &usize| {
        let near = cut % 512 < 24 || cut % 512 > 488;
        every_one() || near || cut.is_multiple_of(7)
    };
    let cuts: Vec<usize> = (1..=length).filter(meant).collect();
    let left = try_all(&cuts, |cut, folder| {
        whole.survives(folder, &whole.file[..cut], &format!("{cut} bytes"))
    });
    assert!(left >= 1, "the uncut file is whole");
    assert!(
        left < 4 && cuts.len() > 1_000,
        "{left} of {} cuts",
        cuts.len()
    );
}

#[test]
fn a_bit_flipped_anywhere_is_refused_or_means_nothing() {
    let whole = Whole::read();
    let meant = |bit: &usize| {
        let (byte, place) = (bit / 8, bit % 8);
        let used = whole.file.get(byte).is_some_and(|byte| *byte != 0);
        every_one() || (used && place == byte % 8) || (byte.is_multiple_of(61) && place == 7)
    };
    let bits: Vec<usize> = (0..whole.file.len() * 8).filter(meant).collect();
    let left = try_all(&bits, |bit, folder| {
        let mut file = whole.file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        whole.survives(
            folder,
            &file,
            &format!("bit {} of byte {}", bit % 8, bit / 8),
        )
    });
    let refused = bits.len() - left;
    assert!(refused > 1_000, "{refused} of {}", bits.len());
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(folder.join(name))
        .unwrap();
    file.write_all(bytes).unwrap();
}
