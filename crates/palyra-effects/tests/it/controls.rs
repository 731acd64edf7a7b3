//! Attacks that really do what they say, run here and now: each of them leaves `proof` behind, and
//! none of them is understood. Without this the vectors would only prove what we believe.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::machine::analyse;

const ATTACKS: &[&[&str]] = &[
    &["bash", "-c", "jobs -x touch proof"],
    &["bash", "-c", "history -s x; history -w proof"],
    &["bash", "-c", "declare 'a[$(touch proof)0]=1'"],
    &["bash", "-c", "declare -xi 'x=a[$(touch proof)0]'"],
    &["bash", "-c", "echo | mapfile -tc 1 -C 'touch proof #' a"],
    &[
        "bash",
        "-c",
        "mkdir p; ln -s $(command -v touch) p/ls; printf -vPATH p; ls proof",
    ],
    &["bash", "-c", r"echo `echo \\'; touch proof #'`"],
    &["bash", "-c", "x='-v a[$(touch${IFS}proof)]'; [ ! $x ]"],
    &[
        "sh",
        "-c",
        "f() { echo > proof; }; mkdir d; cd d; f; mv proof ..",
    ],
    &["sh", "-c", "x=--filter=./evil; split $x a"],
    &["split", "--f=touch proof", "a"],
    &["tar", "xIf", "./evil", "a"],
    &["find", "a", "-exec", "split", "+", "--filter=./evil", ";"],
    &["git", "-c", "alias.x=!touch proof", "x"],
    &["git", "init", "--template=template", "repo"],
];

#[test]
fn each_attack_works_and_is_not_understood() {
    for argv in ATTACKS {
        let folder = tempfile::tempdir().unwrap();
        assert!(leaves_proof(argv, folder.path()), "{argv:?} does nothing");
        let found = analyse(argv);
        let writes = format!("{:?}", found.effects).contains("proof");
        assert!(found.is_opaque() || writes, "{argv:?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the control of an attack is to run it; each stays in a folder of its own"
)]
fn leaves_proof(argv: &[&str], folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(folder.join("a"), "b\na\n").unwrap();
    std::fs::write(folder.join("+"), "b\na\n").unwrap();
    let evil = folder.join("evil");
    std::fs::write(&evil, "#!/bin/sh\ntouch proof\n").unwrap();
    std::fs::set_permissions(&evil, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(folder.join("template/hooks")).unwrap();
    std::fs::write(folder.join("template/hooks/proof"), "").unwrap();
    let (program, arguments) = argv.split_first().unwrap();
    let mut command = Command::new(program);
    let silent = command.args(arguments).current_dir(folder);
    let silent = silent.stdin(Stdio::null()).stdout(Stdio::null());
    silent.stderr(Stdio::null()).status().unwrap();
    folder.join("proof").exists() || folder.join("repo/.git/hooks/proof").exists()
}
