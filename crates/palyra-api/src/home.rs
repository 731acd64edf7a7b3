//! Where a daemon keeps its things: one folder under `PALYRA_HOME`, else the XDG folders.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
}

/// No home could be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHome {
    /// Neither variable is there.
    #[error("neither `PALYRA_HOME` nor `HOME` is set; set `PALYRA_HOME` to an absolute folder")]
    Unset,
    /// A variable holds a relative path.
    #[error("`{variable}` is `{path}`, which is not absolute; set it to an absolute folder")]
    Relative {
        /// Which.
        variable: &'static str,
        /// What it holds.
        path: String,
    },
    /// A variable holds a path that is not UTF-8.
    #[error("`{variable}` is not UTF-8; set it to a folder with a UTF-8 name")]
    NotText {
        /// Which.
        variable: &'static str,
    },
    /// The socket's path does not fit into a socket address.
    #[error(
        "the socket path `{0}` is longer than 107 bytes; set `PALYRA_HOME` to a shorter folder"
    )]
    SocketTooLong(String),
}

impl Home {
    /// The home that this process's environment names.
    ///
    /// # Errors
    /// The environment names none, or one that cannot work.
    pub fn from_env() -> Result<Self, NoHome> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// The home that `lookup` names.
    ///
    /// # Errors
    /// It names none, or one that cannot work.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHome> {
        let folder = |variable: &'static str| {
            lookup(variable)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
                .map(|path| absolute(variable, path))
                .transpose()
        };
        let home = match folder("PALYRA_HOME")? {
            Some(one) => Self::in_folder(&one),
            None => {
                let user = folder("HOME")?.ok_or(NoHome::Unset)?;
                let xdg = |found: Option<PathBuf>, usual: &str| {
                    found.unwrap_or_else(|| user.join(usual)).join("palyra")
                };
                let state = xdg(folder("XDG_STATE_HOME")?, ".local/state");
                let runtime = folder("XDG_RUNTIME_DIR")?.map(|folder| folder.join("palyra"));
                Self {
                    config: xdg(folder("XDG_CONFIG_HOME")?, ".config"),
                    runtime: runtime.unwrap_or_else(|| state.join("run")),
                    state,
                }
            }
        };
        let socket = home.socket();
        if socket.as_os_str().len() > 107 {
            return Err(NoHome::SocketTooLong(socket.display().to_string()));
        }
        Ok(home)
    }

    /// Everything under one folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            config: folder.to_owned(),
            state: folder.to_owned(),
            runtime: folder.to_owned(),
        }
    }

    /// Every folder that is the daemon's own: 0700, and hidden from every tool.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![
            self.config.clone(),
            self.state.clone(),
            self.runtime.clone(),
        ];
        folders.sort();
        folders.dedup();
        folders
    }

    /// Whether a file of this name shows that a folder is a daemon's.
    #[must_use]
    pub fn owns(name: &std::ffi::OsStr) -> bool {
        const OURS: [&str; 9] = [
            "palyra.toml",
            "palyrad.sock",
            "palyrad.lock",
            "start.lock",
            "journal.db",
            "digest.key",
            "journal.key",
            "blobs.key",
            "vault.db",
        ];
        OURS.iter().any(|own| name == *own)
    }

    /// The folder whose owner the daemon must be.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("palyrad.sock")
    }

    /// The lock that one daemon holds; it contains the holder's pid.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.state.join("palyrad.lock")
    }

    /// The lock under which the command line starts a daemon.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.state.join("start.lock")
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal.db")
    }

    /// What appeared during calls and was taken away.
    #[must_use]
    pub fn quarantine(&self) -> PathBuf {
        self.state.join("quarantine")
    }

    /// The key of call digests.
    #[must_use]
    pub fn digest_key(&self) -> PathBuf {
        self.state.join("digest.key")
    }

    /// The key that signs the journal's checkpoints.
    #[must_use]
    pub fn journal_key(&self) -> PathBuf {
        self.state.join("journal.key")
    }

    /// The key that seals arguments, facts and output.
    #[must_use]
    pub fn blob_key(&self) -> PathBuf {
        self.state.join("blobs.key")
    }

    /// The log of a daemon that the command line started.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state.join("palyrad.log")
    }

    /// The operator's own policies.
    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.config.join("policies")
    }

    /// The configuration.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config.join("palyra.toml")
    }
}

/// Where the command line remembers what it saw of journals: outside of every daemon's home, so that
/// whoever replaces a home does not replace this as well. `None` when the environment names no
/// place.
#[must_use]
pub fn witness_folder(lookup: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |variable: &str| {
        lookup(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("palyra-witness"))
}

fn absolute(variable: &'static str, path: PathBuf) -> Result<PathBuf, NoHome> {
    // Plans and records name these folders as text.
    if path.to_str().is_none() {
        return Err(NoHome::NotText { variable });
    }
    if path.is_absolute() {
        return Ok(path);
    }
    Err(NoHome::Relative {
        variable,
        path: path.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(variables: &[(&str, &str)]) -> Result<Home, NoHome> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Home::from_lookup(|name| find(name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn one_folder_holds_everything() {
        let home = home(&[("PALYRA_HOME", "/srv/p"), ("HOME", "/home/a")]).unwrap();
        assert_eq!(home.folders(), [PathBuf::from("/srv/p")]);
        assert_eq!(home.socket(), Path::new("/srv/p/palyrad.sock"));
    }

    #[test]
    fn xdg_otherwise() {
        let home = home(&[("HOME", "/home/a"), ("XDG_RUNTIME_DIR", "/run/user/7")]).unwrap();
        assert_eq!(
            home.config_file(),
            Path::new("/home/a/.config/palyra/palyra.toml")
        );
        assert_eq!(
            home.journal(),
            Path::new("/home/a/.local/state/palyra/journal.db")
        );
        assert_eq!(home.socket(), Path::new("/run/user/7/palyra/palyrad.sock"));
    }

    #[test]
    fn the_witness_is_outside_of_every_home() {
        let find = |variables: &'static [(&str, &str)]| {
            witness_folder(move |name| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let usual = find(&[("HOME", "/home/a"), ("PALYRA_HOME", "/srv/p")]).unwrap();
        assert_eq!(usual, Path::new("/home/a/.local/state/palyra-witness"));
        let xdg = find(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "/s")]).unwrap();
        assert_eq!(xdg, Path::new("/s/palyra-witness"));
        assert_eq!(find(&[("XDG_STATE_HOME", "relative")]), None);
    }

    #[test]
    fn what_cannot_work_says_why() {
        assert_eq!(home(&[]), Err(NoHome::Unset));
        assert!(matches!(
            home(&[("PALYRA_HOME", "p")]),
            Err(NoHome::Relative { .. })
        ));
        let odd: OsString = std::os::unix::ffi::OsStringExt::from_vec(b"/\xff".to_vec());
        let odd = Home::from_lookup(|name| (name == "PALYRA_HOME").then(|| odd.clone()));
        assert_eq!(
            odd,
            Err(NoHome::NotText {
                variable: "PALYRA_HOME"
            })
        );
        let long = format!("/{}", "x".repeat(120));
        assert!(matches!(
            home(&[("PALYRA_HOME", &long)]),
            Err(NoHome::SocketTooLong(_))
        ));
    }
}
