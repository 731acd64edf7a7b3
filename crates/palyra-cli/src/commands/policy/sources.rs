//! The policies that a command is about: a folder, and what stands under it.

use std::path::{Path, PathBuf};

use palyra_api::Home;
use palyra_journal::verify::read_bounded;
use palyra_policy::Baseline;
use palyra_policy::operator::files::{Folder, read_folder};
use palyra_policy::operator::settings::Settings;
use palyra_policy::operator::{Bundle, NamedSource, Problem};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::PolicyPlace;
use crate::exit::Meaning;
use crate::failure::Failure;
use crate::safe;

/// The most that `palyra.toml` may have.
const MOST_CONFIG: u64 = 1 << 20;

/// What stands under a folder of policies: the baseline, and what `palyra.toml` says besides.
pub(super) struct Under {
    pub(super) baseline: Baseline,
    settings: Settings,
}

impl Under {
    /// What was asked for by itself, else what `palyra.toml` says.
    pub(super) fn of(given: Option<crate::args::BaselineArg>) -> Result<Self, Failure> {
        match given {
            Some(given) => Ok(Self::only(given.into())),
            None => configured(),
        }
    }

    fn only(baseline: Baseline) -> Self {
        Self {
            baseline,
            settings: Settings::default(),
        }
    }
}

/// A folder of policies and the baseline under them.
pub(super) struct Sources {
    pub(super) folder: PathBuf,
    pub(super) baseline: Baseline,
    pub(super) read: Result<Folder, Vec<Problem>>,
}

impl Sources {
    /// What the arguments name, else what a daemon of this home reads.
    pub(super) fn find(place: &PolicyPlace) -> Result<Self, Failure> {
        let under = Under::of(place.over.baseline)?;
        if let Some(folder) = &place.folder {
            return Self::at(folder, &under);
        }
        let folder = Home::from_env()?.policies();
        Ok(Self::read(folder, &under))
    }

    /// A folder, or a baseline alone by its name.
    pub(super) fn named(name: &Path, under: &Under) -> Result<Self, Failure> {
        let baseline = name.to_str().and_then(|name| name.parse().ok());
        match baseline {
            Some(baseline) if !name.exists() => Ok(Self {
                folder: name.to_owned(),
                baseline,
                read: Ok(Folder::default()),
            }),
            Some(_) | None => Self::at(name, under),
        }
    }

    /// A folder that somebody named has to be there.
    pub(super) fn at(folder: &Path, under: &Under) -> Result<Self, Failure> {
        if !folder.is_dir() {
            return Err(Failure::new(
                Meaning::Error,
                "no_policy_folder",
                format!("there is no folder `{}`", shown_path(folder)),
                "name the folder that holds your *.cedar files, or leave it out for the daemon's",
            ));
        }
        Ok(Self::read(folder.to_owned(), under))
    }

    fn read(folder: PathBuf, under: &Under) -> Self {
        let mut read = read_folder(&folder);
        if let Ok(found) = &mut read {
            found.policies.extend(under.settings.source());
        }
        Self {
            folder,
            baseline: under.baseline,
            read,
        }
    }

    pub(super) fn under(&self) -> NamedSource {
        NamedSource::new(format!("{}.cedar", self.baseline), self.baseline.source())
    }

    pub(super) fn files(&self) -> Result<&Folder, Failure> {
        self.read.as_ref().map_err(|problems| self.broken(problems))
    }

    pub(super) fn bundle(&self) -> Result<Bundle, Failure> {
        let loaded = Bundle::load(&self.under(), &self.files()?.policies);
        loaded.map_err(|problems| self.broken(&problems))
    }

    fn broken(&self, problems: &[Problem]) -> Failure {
        let first = problems
            .first()
            .map_or_else(String::new, ToString::to_string);
        let message = match problems.len() {
            0 | 1 => format!("these policies cannot be used: {first}"),
            more => {
                format!("these policies cannot be used, for {more} reasons; the first: {first}")
            }
        };
        Failure::new(
            Meaning::Error,
            "policies_invalid",
            message,
            format!(
                "`palyra policy check {}` shows everything that is wrong",
                shown_path(&self.folder)
            ),
        )
    }

    /// A document that says what it is about.
    pub(super) fn with(&self, mut document: Value) -> Value {
        if let Value::Object(fields) = &mut document {
            fields.insert("folder".to_owned(), json!(self.folder));
            fields.insert("baseline".to_owned(), json!(self.baseline.as_str()));
        }
        document
    }
}

pub(super) fn shown_path(path: &Path) -> String {
    safe::line(&path.display().to_string())
}

/// The baseline that `palyra.toml` names.
pub(in crate::commands) fn configured_baseline() -> Result<Baseline, Failure> {
    configured().map(|under| under.baseline)
}

/// What `palyra.toml` says about policies. The daemon reads all of it and is stricter.
fn configured() -> Result<Under, Failure> {
    #[derive(Default, Deserialize)]
    struct Config {
        #[serde(default)]
        policy: Part,
    }
    #[derive(Default, Deserialize)]
    struct Part {
        baseline: Option<String>,
        #[serde(flatten)]
        settings: Settings,
    }
    let config = Home::from_env()?.config_file();
    let refused = |why: String| {
        Failure::new(
            Meaning::Error,
            "config_unreadable",
            format!(
                "`{}` does not tell the baseline: {}",
                shown_path(&config),
                safe::line(&why)
            ),
            "put that right, or name one with `--baseline standard`",
        )
    };
    let text = match read_bounded(&config, MOST_CONFIG) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| refused("it is no text".to_owned()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(refused(error.to_string())),
    };
    let Config { policy } =
        toml::from_str(&text).map_err(|error| refused(error.message().to_owned()))?;
    let baseline = policy.baseline.map(|name| name.parse::<Baseline>());
    let baseline = baseline.transpose();
    Ok(Under {
        baseline: baseline
            .map_err(|error| refused(error.to_string()))?
            .unwrap_or_default(),
        settings: policy.settings,
    })
}
