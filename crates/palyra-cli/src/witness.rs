//! What this user has seen of journals: the last checkpoint and key of each home.
//!
//! A journal that was cut or replaced fits together in itself. Only somebody who saw it before can
//! tell, and the command line sees it often. It remembers outside of every daemon's home, in a
//! folder that no call sees, and refuses a history that does not continue what it saw.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use palyra_api::Home;
use palyra_api::home::witness_folder;
use palyra_core::Digest;
use palyra_journal::proof::{Checkpoint, Note, VerifierKey};
use palyra_journal::verify::Trust;
use serde::{Deserialize, Serialize};

use crate::exit::Meaning;
use crate::failure::Failure;
use crate::folders::private_file;

/// The folder with what was seen.
#[derive(Debug, Clone)]
pub struct Witness {
    folder: PathBuf,
}

/// What was seen of one home's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The folder of the journal.
    pub home: PathBuf,
    /// Who signed last.
    pub key: VerifierKey,
    /// Checkpoints, the largest last. The older, the fewer: enough to say where a fork is.
    pub checkpoints: Vec<(Checkpoint, Note)>,
}

/// How it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    home: PathBuf,
    key: String,
    checkpoints: Vec<String>,
}

impl Witness {
    /// The witness of this user; `None` when the environment names no place for it.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        witness_folder(|name| std::env::var_os(name)).map(|folder| Self { folder })
    }

    /// What was seen of the journal in this folder.
    ///
    /// # Errors
    /// What was kept does not read. It is not taken for "nothing".
    pub fn of_folder(&self, folder: &Path) -> Result<Option<Seen>, Failure> {
        let file = self.file(&real(folder));
        match std::fs::read(&file) {
            Ok(bytes) => Seen::parse(&bytes)
                .map(Some)
                .ok_or_else(|| unreadable(&file, "it is not what was written")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&file, &error.to_string())),
        }
    }

    /// What was seen of the journal of this name, wherever it was.
    ///
    /// # Errors
    /// What was kept does not read.
    pub fn of_origin(&self, origin: &str) -> Result<Option<Seen>, Failure> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&self.folder, &error.to_string())),
        };
        for entry in entries.flatten() {
            let seen = std::fs::read(entry.path())
                .ok()
                .and_then(|bytes| Seen::parse(&bytes));
            if let Some(seen) = seen.filter(|seen| seen.key.name() == origin) {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// Remembers.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(&self, seen: &Seen) -> Result<(), Failure> {
        let file = self.file(&seen.home);
        let kept = Kept {
            home: seen.home.clone(),
            key: seen.key.to_string(),
            checkpoints: seen
                .checkpoints
                .iter()
                .map(|(_, note)| note.to_string())
                .collect(),
        };
        self.write(&file, &kept)
            .map_err(|error| unreadable(&file, &error.to_string()))
    }

    fn write(&self, file: &Path, kept: &Kept) -> std::io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let fresh = file.with_extension(format!("{}.new", std::process::id()));
        let mut to = private_file()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&fresh)?;
        to.write_all(&serde_json::to_vec_pretty(kept)?)?;
        to.sync_all()?;
        std::fs::rename(&fresh, file)
    }

    fn file(&self, home: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = Digest::of(home.as_os_str().as_bytes()).to_string();
        let name = digest.trim_start_matches("sha256:");
        self.folder.join(format!("{name}.json"))
    }
}

impl Seen {
    /// The first sight of a home.
    #[must_use]
    pub fn first(home: &Home, key: VerifierKey, checkpoint: Checkpoint, note: Note) -> Self {
        Self {
            home: real(home.state()),
            key,
            checkpoints: vec![(checkpoint, note)],
        }
    }

    /// A later sight of it, which was shown to continue this one.
    pub fn later(&mut self, key: VerifierKey, checkpoint: Checkpoint, note: Note) {
        self.key = key;
        let head = checkpoint.size;
        self.checkpoints.push((checkpoint, note));
        self.checkpoints
            .sort_by_key(|(checkpoint, _)| checkpoint.size);
        // The oldest for each power of two behind the head: as the head moves on, they spread.
        let distance = |checkpoint: &Checkpoint| head.abs_diff(checkpoint.size).checked_ilog2();
        self.checkpoints
            .dedup_by_key(|(checkpoint, _)| distance(checkpoint));
    }

    /// The last checkpoint.
    #[must_use]
    pub fn head(&self) -> Option<&Checkpoint> {
        self.checkpoints.last().map(|(checkpoint, _)| checkpoint)
    }

    /// What follows from it for whoever verifies.
    #[must_use]
    pub fn add_to(&self, trust: Trust) -> Trust {
        let pin = |trust: Trust, (_, note): &(Checkpoint, Note)| {
            trust.clone().pinned(note.clone()).unwrap_or(trust)
        };
        self.checkpoints
            .iter()
            .fold(trust.key(self.key.clone()), pin)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(bytes).ok()?;
        let checkpoint = |text: &String| {
            let note: Note = text.parse().ok()?;
            Some((Checkpoint::unverified(&note).ok()?, note))
        };
        let checkpoints: Vec<_> = kept
            .checkpoints
            .iter()
            .map(checkpoint)
            .collect::<Option<_>>()?;
        (!checkpoints.is_empty()).then_some(Self {
            home: kept.home,
            key: kept.key.parse().ok()?,
            checkpoints,
        })
    }
}

/// The folder as the kernel knows it, if it is there.
fn real(folder: &Path) -> PathBuf {
    folder
        .canonicalize()
        .unwrap_or_else(|_| folder.to_path_buf())
}

fn unreadable(file: &Path, why: &str) -> Failure {
    Failure::new(
        Meaning::Error,
        "witness_unusable",
        format!(
            "what was seen of the journal (`{}`) cannot be used: {why}",
            file.display()
        ),
        "mend or remove it; without it, a journal that was replaced cannot be told",
    )
}

#[cfg(test)]
mod tests {
    use palyra_journal::proof::{Hash, SignerKey};

    use super::*;

    fn seen(sizes: &[u64]) -> Seen {
        let key = SignerKey::from_seed("o", &[1; 32]).unwrap();
        let at = |size| {
            let checkpoint = Checkpoint {
                origin: "o".to_owned(),
                size,
                root: Hash::empty(),
            };
            let note = checkpoint.sign(&key).unwrap();
            (checkpoint, note)
        };
        let mut sizes = sizes.iter();
        let mut seen = Seen {
            home: PathBuf::from("/h"),
            key: key.verifier(),
            checkpoints: sizes.next().map(|size| at(*size)).into_iter().collect(),
        };
        for size in sizes {
            let (checkpoint, note) = at(*size);
            seen.later(key.verifier(), checkpoint, note);
        }
        seen
    }

    #[test]
    fn what_was_seen_stays_short_and_ends_with_the_head() {
        let all: Vec<u64> = (0..=5_000).collect();
        let seen = seen(&all);
        assert_eq!(seen.head().unwrap().size, 5_000);
        assert!(seen.checkpoints.len() <= 14, "{}", seen.checkpoints.len());
        assert!(
            seen.checkpoints
                .is_sorted_by_key(|(checkpoint, _)| checkpoint.size)
        );
        assert!(seen.checkpoints.len() > 5);
    }

    #[test]
    fn it_is_kept_and_what_does_not_read_is_not_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let witness = Witness {
            folder: folder.path().join("w"),
        };
        let seen = seen(&[1, 2, 9]);
        assert_eq!(witness.of_folder(Path::new("/h")).unwrap(), None);
        assert_eq!(witness.of_origin("o").unwrap(), None);
        witness.keep(&seen).unwrap();
        assert_eq!(
            witness.of_folder(Path::new("/h")).unwrap(),
            Some(seen.clone())
        );
        assert_eq!(witness.of_origin("o").unwrap(), Some(seen));
        assert_eq!(witness.of_origin("p").unwrap(), None);
        let file = witness.file(Path::new("/h"));
        for broken in ["", "{}", r#"{"home":"/h","key":"x","checkpoints":[]}"#] {
            std::fs::write(&file, broken).unwrap();
            assert!(witness.of_folder(Path::new("/h")).is_err());
        }
    }
}
