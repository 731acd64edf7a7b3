//! A path beneath a workspace, as the file system spells it: bytes, and rarely not UTF-8.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A path beneath a workspace; empty for the workspace itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(crate) struct Spot(Vec<u8>);

/// How it travels: JSON has no bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Written> for Spot {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            Written::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Spot> for Written {
    fn from(spot: Spot) -> Self {
        match String::from_utf8(spot.0) {
            Ok(text) => Self::Text(text),
            Err(other) => Self::Bytes(other.into_bytes()),
        }
    }
}

impl Spot {
    /// A relative path. What is absolute, or leads up, is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::path::Component;
        let mut spot = Self::default();
        for part in path.components() {
            match part {
                Component::Normal(name) => spot = spot.join(name.as_bytes()),
                Component::CurDir => {}
                Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
            }
        }
        Some(spot)
    }

    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What system calls take: the workspace itself is `.`.
    pub(crate) fn path(&self) -> &Path {
        let bytes: &[u8] = if self.0.is_empty() { b"." } else { &self.0 };
        Path::new(OsStr::from_bytes(bytes))
    }

    /// Its last name; empty for the workspace itself.
    pub(crate) fn name(&self) -> &[u8] {
        self.0
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
    }

    /// The folder it is in; none for the workspace itself.
    pub(crate) fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let at = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0.get(..at).unwrap_or_default().to_vec()))
    }

    /// Whether it is `other` or beneath it.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        match self.0.strip_prefix(other.0.as_slice()) {
            Some(rest) => other.0.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.path().display(), f)
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.path(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_and_travel() {
        let spot = Spot::of(Path::new("a/./b")).unwrap();
        assert_eq!((spot.name(), spot.bytes()), (&b"b"[..], &b"a/b"[..]));
        assert_eq!(spot.parent(), Spot::of(Path::new("a")));
        assert_eq!(spot.parent().unwrap().parent(), Some(Spot::default()));
        assert_eq!(Spot::default().parent(), None);
        assert!(Spot::of(Path::new("a/../b")).is_none() && Spot::of(Path::new("/a")).is_none());
        assert!(spot.is_within(&Spot::default()) && spot.is_within(&spot.parent().unwrap()));
        assert!(
            !Spot::of(Path::new("ab"))
                .unwrap()
                .is_within(&spot.parent().unwrap())
        );

        for spot in [spot, Spot::default().join(b"\xff"), Spot::default()] {
            let text = serde_json::to_string(&spot).unwrap();
            assert_eq!(serde_json::from_str::<Spot>(&text).unwrap(), spot);
        }
    }
}
