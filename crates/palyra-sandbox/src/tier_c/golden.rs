//! Plans as they were last looked at by a person.

use std::path::{Path, PathBuf};

use palyra_core::plan::{EgressEnforcementMode, FileId, ProcView, ProgramId};
use palyra_core::{CodePart, Content, Digest, Pinned};

use super::cage::{self, Cage, Wanted};
use super::host::{Host, SystemFolder};
use crate::ground::policy::{Guard, Hold};
use crate::ground::spot::Spot;

/// The cage that every back end is asked for.
pub(crate) fn cage() -> Cage {
    let host = Host {
        system: vec![
            SystemFolder::Folder("/usr".into()),
            SystemFolder::Link("/bin".into(), "usr/bin".into()),
            SystemFolder::Folder("/etc".into()),
        ],
        devices: vec!["null", "zero"],
        resolver: None,
        names: Vec::new(),
    };
    let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
    let masked = paths(&["/home/u/.palyra", "/home/u/work/inner/home", "/etc/palyra"]);
    let wanted = Wanted {
        workspace: Path::new("/home/u/work"),
        workspace_id: FileId {
            device: 1,
            inode: 2,
        },
        writable: true,
        home: Some(Path::new("/home/u")),
        read_only: &paths(&["/home/u/.rustup"]),
        masked: &masked,
        guards: [
            (".env", Hold::Masked),
            (".git", Hold::Pinned),
            (".git/config", Hold::ReadOnly),
            ("fixtures", Hold::Writable),
        ]
        .map(|(at, hold)| Guard {
            at: Spot::of(Path::new(at)).unwrap(),
            id: FileId {
                device: 1,
                inode: 3,
            },
            hold,
        })
        .to_vec(),
        code: &code(),
        egress: EgressEnforcementMode::Strict,
        ports: &[],
        laid: &[],
        proc: ProcView::Pids,
        scratch: 3 << 20,
        with_system: true,
    };
    cage::plan(&host, &wanted).unwrap()
}

/// A script of the workspace that runs, one that is masked there, and a program of the system.
pub(crate) fn code() -> Vec<Pinned> {
    let parts = [
        ("/usr/bin/dash", CodePart::Program),
        ("/home/u/work/build.sh", CodePart::Operand),
        ("/home/u/work/.env", CodePart::Operand),
        ("/home/u/work/made.sh", CodePart::Later),
    ];
    let pinned = |(real, part): (&str, CodePart)| Pinned {
        path: real.into(),
        real: real.into(),
        part,
        content: Content::Sha256(Digest::of(b"x")),
        seen: Some(ProgramId {
            file: FileId {
                device: 1,
                inode: 9,
            },
            size: 1,
            modified: (1, 0),
            changed: (1, 0),
        }),
        fixed: part == CodePart::Program,
    };
    parts.map(pinned).to_vec()
}

/// Compares with the file of this name; a difference is shown whole.
pub(crate) fn compare(name: &str, text: &str) {
    // Tests run in the folder of their crate.
    let path = Path::new("golden").join(name);
    let agreed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text.trim_end(), agreed.trim_end(), "{name}:\n{text}");
}
