//! What this user has seen of journals: the last checkpoint and key of each home.
//!
//! A journal that was cut or replaced fits together in itself. Only somebody who saw it before can
//! tell, and the command line sees it often. It remembers outside of every daemon's home, in a
//! folder that no call sees, and refuses a history that does not continue what it saw.
//!
//! A home is known by the path it was asked for under and by its real one: somebody who puts a link in
//! its place, or moves it behind one, changes only one of them. A journal that is met under a new
//! path is known by its name, and has to continue what was seen of it elsewhere; from then on each
//! path has its own memory, so that a copy which goes its own way does not spoil the original's.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use palyra_api::home::witness_folder;
use palyra_core::Digest;
use palyra_journal::proof::{Checkpoint, Note, VerifierKey};
use palyra_journal::verify::{Trust, read_bounded};
use serde::{Deserialize, Serialize};

use crate::exit::Meaning;
use crate::failure::Failure;
use crate::folders::private_file;

/// The folder with what was seen.
#[derive(Debug, Clone)]
pub struct Witness {
    folder: PathBuf,
}

/// The most that is kept about one path.
const MOST: u64 = 1 << 20;

/// What was seen of one home's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
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

    /// What was seen of the journal in this folder, the most first: a journal there has to continue
    /// all of it.
    ///
    /// # Errors
    /// What was kept does not read. It is not taken for "nothing".
    pub fn of_folder(&self, folder: &Path) -> Result<Vec<Seen>, Failure> {
        let mut found = Vec::new();
        for name in names(folder) {
            let file = self.file(&name);
            match read_bounded(&file, MOST) {
                Ok(bytes) => found.push(
                    Seen::parse(&bytes)
                        .ok_or_else(|| unreadable(&file, "it is not what was written"))?,
                ),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&file, &error.to_string())),
            }
        }
        Ok(most_first(found))
    }

    /// What was seen of the journal of this name, wherever it was, the most first. Copies of one
    /// journal may have gone different ways.
    ///
    /// # Errors
    /// What was kept does not read.
    pub fn of_origin(&self, origin: &str) -> Result<Vec<Seen>, Failure> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(&self.folder, &error.to_string())),
        };
        let seen = entries.flatten().filter_map(|entry| {
            let bytes = read_bounded(&entry.path(), MOST).ok()?;
            Seen::parse(&bytes).filter(|seen| seen.key.name() == origin)
        });
        Ok(most_first(seen.collect()))
    }

    /// Remembers about the journal in this folder.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(&self, folder: &Path, seen: &Seen) -> Result<(), Failure> {
        for home in names(folder) {
            let file = self.file(&home);
            let notes = seen.checkpoints.iter().map(|(_, note)| note.to_string());
            let kept = Kept {
                home,
                key: seen.key.to_string(),
                checkpoints: notes.collect(),
            };
            self.write(&file, &kept)
                .map_err(|error| unreadable(&file, &error.to_string()))?;
        }
        Ok(())
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
    pub fn first(key: VerifierKey, checkpoint: Checkpoint, note: Note) -> Self {
        Self {
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
            key: kept.key.parse().ok()?,
            checkpoints,
        })
    }
}

/// A folder as it was asked for, and as the kernel knows it, if it is there.
fn names(folder: &Path) -> BTreeSet<PathBuf> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let asked = std::path::absolute(here).unwrap_or_else(|_| here.to_path_buf());
    let real = here.canonicalize().unwrap_or_else(|_| asked.clone());
    BTreeSet::from([asked, real])
}

fn most_first(mut seen: Vec<Seen>) -> Vec<Seen> {
    seen.sort_by_key(|seen| Reverse(seen.head().map(|head| head.size)));
    seen.dedup();
    seen
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
        let nothing: [Seen; 0] = [];
        assert_eq!(witness.of_folder(Path::new("/h")).unwrap(), nothing);
        assert_eq!(witness.of_origin("o").unwrap(), nothing);
        witness.keep(Path::new("/h"), &seen).unwrap();
        assert_eq!(
            witness.of_folder(Path::new("/h")).unwrap(),
            std::slice::from_ref(&seen)
        );
        assert_eq!(witness.of_origin("o").unwrap(), [seen]);
        assert_eq!(witness.of_origin("p").unwrap(), nothing);
        let file = witness.file(Path::new("/h"));
        for broken in ["", "{}", r#"{"home":"/h","key":"x","checkpoints":[]}"#] {
            std::fs::write(&file, broken).unwrap();
            assert!(witness.of_folder(Path::new("/h")).is_err());
        }
    }

    /// Whoever puts a link where a home was, or moves a home behind one, changes one name of two.
    #[test]
    fn a_home_is_known_by_the_path_asked_for_and_by_the_real_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let witness = Witness { folder: at("w") };
        let (long, short) = (seen(&[1, 2, 9]), seen(&[1, 2]));
        let heads = |path: &Path| -> Vec<u64> {
            let seen = witness.of_folder(path).unwrap();
            seen.iter().map(|seen| seen.head().unwrap().size).collect()
        };
        for home in ["home", "other"] {
            std::fs::create_dir(at(home)).unwrap();
        }
        witness.keep(&at("home"), &long).unwrap();
        witness.keep(&at("other"), &short).unwrap();
        std::os::unix::fs::symlink(at("home"), at("link")).unwrap();
        assert_eq!(heads(&at("link")), [9], "by its real path");
        std::fs::rename(at("home"), at("moved")).unwrap();
        assert_eq!(heads(&at("moved")), [0; 0], "control: a new path");
        std::os::unix::fs::symlink(at("moved"), at("home")).unwrap();
        assert_eq!(heads(&at("home")), [9], "by the path asked for");
        std::fs::remove_file(at("home")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("home")).unwrap();
        assert_eq!(heads(&at("home")), [9, 2], "it has to continue both");
    }
}
