//! The operator's folder: what it holds now, and whether that can be used.

use std::path::PathBuf;

use palyra_core::Digest;
use palyra_policy::Baseline;
use palyra_policy::operator::files::read_folder;
use palyra_policy::operator::settings::{FILE, Settings};
use palyra_policy::operator::{Bundle, NamedSource, Problem};

use super::versions::{PolicyVersion, SourceText, Sources};

/// Where the operator's policies are, and what stands under them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPlace {
    /// The folder of `*.cedar` files; it need not exist.
    pub folder: PathBuf,
    /// What decides where they say nothing else.
    pub baseline: Baseline,
    /// What the configuration says about who may use which tools; it counts as one more file.
    pub settings: Settings,
    /// Whether a change waits for a person.
    pub staging: bool,
}

/// What the folder held when it was looked at.
pub(crate) struct Found {
    /// Of the baseline's name and every file, or of why they cannot be read. A new version of
    /// this program changes its schema and its baselines, but not what the operator wrote; so
    /// neither is part of it, and what was set aside stays so.
    pub(crate) digest: Digest,
    read: Result<Sources, Vec<Problem>>,
    gone: bool,
}

/// What the folder held, checked.
pub(crate) struct Looked {
    pub(crate) digest: Digest,
    pub(crate) set: Result<Checked, Vec<Problem>>,
    /// There is no folder.
    gone: bool,
}

/// Texts that can be used, and what they make.
pub(crate) struct Checked {
    pub(crate) sources: Sources,
    pub(crate) bundle: Bundle,
}

impl PolicyPlace {
    /// Reads the folder. This blocks.
    pub(crate) fn find(&self) -> Found {
        let baseline = NamedSource::new(format!("{}.cedar", self.baseline), self.baseline.source());
        let folder = read_folder(&self.folder);
        let gone = folder.as_ref().is_ok_and(|folder| folder.absent);
        let read = folder.map(|folder| Sources {
            baseline: SourceText::from(&baseline),
            files: folder
                .policies
                .iter()
                .chain(&self.settings.source())
                .map(SourceText::from)
                .collect(),
        });
        let mut parts = vec![self.baseline.as_str().to_owned()];
        match &read {
            Ok(sources) => {
                let files = sources.files.iter();
                parts.extend(files.flat_map(|file| [file.name.clone(), file.text.clone()]));
            }
            Err(problems) => parts.extend(problems.iter().map(ToString::to_string)),
        }
        let kind = match (&read, gone) {
            (Ok(_), false) => "files",
            (Ok(_), true) => "no folder",
            (Err(_), _) => "problems",
        };
        let parts: Vec<&[u8]> = [kind.as_bytes()]
            .into_iter()
            .chain(parts.iter().map(String::as_bytes))
            .collect();
        Found {
            digest: Digest::of_parts("palyra policy folder v1", &parts),
            read,
            gone,
        }
    }

    /// What stands under the operator's policies, and nothing else.
    pub(crate) fn baseline_alone(&self) -> Sources {
        let baseline = NamedSource::new(format!("{}.cedar", self.baseline), self.baseline.source());
        Sources {
            baseline: SourceText::from(&baseline),
            files: Vec::new(),
        }
    }

    /// Reads the folder and checks what it holds, unless that is what was seen before. This
    /// blocks, for thousands of policies a while.
    pub(crate) fn look(&self, unless: Option<Digest>) -> Option<Looked> {
        let found = self.find();
        (unless != Some(found.digest)).then(|| found.check())
    }
}

impl Found {
    pub(crate) fn check(self) -> Looked {
        let set = self.read.and_then(|sources| {
            let bundle = sources.bundle()?;
            Ok(Checked { sources, bundle })
        });
        Looked {
            digest: self.digest,
            set,
            gone: self.gone,
        }
    }

    /// The digest of the files, if they could be read.
    pub(crate) fn of_files(&self) -> Option<Digest> {
        self.read.is_ok().then_some(self.digest)
    }
}

impl Looked {
    /// A folder that is gone while its policies are in force is a mistake, or a moment in the middle
    /// of a change: it must not lift every `forbid`. An empty folder says that there are none.
    pub(crate) fn after(mut self, last: Option<&PolicyVersion>, place: &PolicyPlace) -> Self {
        let had_files = last.is_some_and(|last| last.files.keys().any(|name| name != FILE));
        if self.gone && had_files {
            self.set = Err(vec![Problem::whole(
                &place.folder.display().to_string(),
                "the folder is gone, and policies from it are in force; put it back, or make an \
                 empty one to have none",
            )]);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_follows_the_files_and_the_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let mut place = PolicyPlace {
            folder: folder.path().join("policies"),
            baseline: Baseline::Standard,
            settings: Settings::default(),
            staging: false,
        };
        let none = place.find().digest;
        std::fs::create_dir(&place.folder).unwrap();
        assert_ne!(place.find().digest, none, "an empty folder says something");
        std::fs::write(place.folder.join("a.cedar"), "// x").unwrap();
        let one = place.find();
        assert_ne!(one.digest, none);
        assert_eq!(one.of_files(), Some(one.digest));
        assert!(place.look(Some(one.digest)).is_none());
        place.baseline = Baseline::Locked;
        assert_ne!(place.find().digest, one.digest);
        let other = place.find().digest;
        place.settings.allow_sensitive_tools = Some(false);
        assert_ne!(place.find().digest, other);
        std::fs::create_dir(place.folder.join("b.cedar")).unwrap();
        let unread = place.find();
        assert_eq!(unread.of_files(), None);
        assert!(unread.check().set.is_err());
    }
}
