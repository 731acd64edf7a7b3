//! The people of this machine and their homes, read once at start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use palyra_core::plan::RunAs;

/// Who lives where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct People {
    /// The home of the daemon's user.
    own: PathBuf,
    /// Primary group and home by uid.
    entries: BTreeMap<u32, (u32, PathBuf)>,
}

impl People {
    /// From the lines of `/etc/passwd` and the daemon's own home.
    #[must_use]
    pub fn of(passwd: &str, own: PathBuf) -> Self {
        let entries = passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let number = |place: usize| fields.get(place)?.parse().ok();
            Some((number(2)?, (number(3)?, PathBuf::from(fields.get(5)?))))
        });
        Self {
            own,
            entries: entries.collect(),
        }
    }

    /// The home folders of persons: root and the ordinary uids. A service's "home" such as
    /// `/var/www` may well be worked on.
    pub fn homes(&self) -> impl Iterator<Item = &Path> {
        let is_person = |uid: &u32| *uid == 0 || (1_000..65_534).contains(uid);
        let listed = self.entries.iter().filter(move |(uid, _)| is_person(uid));
        std::iter::once(self.own.as_path()).chain(listed.map(|(_, (_, home))| home.as_path()))
    }

    /// The primary group of a uid.
    #[must_use]
    pub fn group_of(&self, uid: u32) -> Option<u32> {
        self.entries.get(&uid).map(|(gid, _)| *gid)
    }

    /// What `HOME` is for a process that runs like this.
    #[must_use]
    pub fn home_for(&self, run_as: RunAs) -> PathBuf {
        match run_as {
            RunAs::Daemon | RunAs::Lent { uid: 0, .. } => self.own.clone(),
            RunAs::Owner { uid, .. } | RunAs::Lent { uid, .. } => {
                let found = self.entries.get(&uid).map(|(_, home)| home.clone());
                found.unwrap_or_else(|| PathBuf::from("/"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_have_homes_and_services_do_not() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/false\nann:x:1000:1000::/home/ann:/bin/sh\nbroken\n";
        let people = People::of(passwd, PathBuf::from("/home/me"));
        let homes: Vec<&Path> = people.homes().collect();
        assert_eq!(homes, ["/home/me", "/root", "/home/ann"].map(Path::new));
        let owner = |uid| people.home_for(RunAs::Owner { uid, gid: uid });
        assert_eq!(
            (people.group_of(33), people.group_of(4_242)),
            (Some(33), None)
        );
        assert_eq!(owner(33), Path::new("/var/www"));
        assert_eq!(owner(4_242), Path::new("/"));
        assert_eq!(people.home_for(RunAs::Daemon), Path::new("/home/me"));
    }
}
