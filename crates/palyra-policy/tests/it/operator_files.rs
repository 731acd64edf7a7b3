//! The folder of policies: what is read, and what is refused by name.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use palyra_policy::operator::files::{MAX_FILE_BYTES, read_folder};

use crate::operator::refused;

#[test]
fn a_folder_is_read_by_name_and_other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let absent = read_folder(&folder.path().join("absent")).unwrap();
    assert!(absent.absent && absent.policies.is_empty() && absent.tests.is_empty());
    for (name, text) in [
        ("b.cedar", "// b"),
        ("a.cedar", "// a"),
        ("a.test.toml", ""),
        ("README.md", "# hello"),
        (".hidden.cedar", "permit;"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let found = read_folder(folder.path()).unwrap();
    let names: Vec<&str> = found.policies.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a.cedar", "b.cedar"]);
    assert_eq!(found.tests.len(), 1);
}

#[test]
fn hostile_files_are_refused_by_name_and_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("real.txt"), "permit (principal, action, resource);").unwrap();
    std::os::unix::fs::symlink(at("real.txt"), at("link.cedar")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("zero.cedar")).unwrap();
    fs::create_dir(at("inner")).unwrap();
    fs::create_dir(at("folder.cedar")).unwrap();
    fs::write(at("bytes.cedar"), b"// \xff\xfe").unwrap();
    fs::write(at("evil\u{202e}.cedar"), "").unwrap();
    fs::write(at("new\nline.cedar"), "").unwrap();
    let big = usize::try_from(MAX_FILE_BYTES).unwrap() + 1;
    fs::write(at("big.cedar"), vec![b'/'; big]).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff.cedar");
    fs::write(folder.path().join(odd), "").unwrap();
    let problems = read_folder(folder.path()).unwrap_err();
    assert_eq!(problems.len(), 9, "{problems:#?}");
    for problem in &problems {
        let shown = problem.to_string();
        assert!(!shown.contains(['\n', '\u{202e}']), "{shown:?}");
    }
}

/// Whatever is wrong is said as `file:line:column`, and a huge file is not even read.
#[test]
fn bad_input_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let huge = fs::File::create(at("huge.cedar")).unwrap();
    huge.set_len(50 * 1024 * 1024).unwrap();
    fs::create_dir(at("deeper")).unwrap();
    std::os::unix::fs::symlink(".", at("loop")).unwrap();
    std::os::unix::fs::symlink("..", at("up.cedar")).unwrap();
    let said: Vec<String> = read_folder(folder.path())
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        [
            "deeper:1:1: folders inside the policy folder are not read; move its files up",
            "huge.cedar:1:1: is larger than 1048576 bytes; split it",
            "up.cedar:1:1: is a link, which could point elsewhere tomorrow; put the file here",
        ]
    );
    let first = |text: &str| refused(text)[0].to_string();
    let unknown = first(
        "\n  @id(\"a\") permit (principal,\n    action == Palyra::Action::\"fly\", resource);",
    );
    assert!(unknown.starts_with("mine.cedar:3:15: "), "{unknown}");
    assert!(unknown.contains("fly"), "{unknown}");
    let deep = format!(
        "@id(\"a\") permit (principal, action, resource) when {{ {}true{} }};",
        "(".repeat(60),
        ")".repeat(60)
    );
    let deep = first(&format!("// deep\n{deep}"));
    assert!(
        deep.starts_with("mine.cedar:2:1: brackets nest deeper than"),
        "{deep}"
    );
}

#[test]
fn a_folder_that_is_too_large_in_all_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let size = usize::try_from(MAX_FILE_BYTES).unwrap();
    for number in 0..17 {
        let name = format!("p{number:02}.cedar");
        fs::write(folder.path().join(name), vec![b'/'; size]).unwrap();
    }
    let problems = read_folder(folder.path()).unwrap_err();
    assert_eq!(problems[0].file, "p16.cedar");
}

/// The folder itself may not be elsewhere: what a tool can write would decide about it.
#[test]
fn a_folder_that_is_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (real, link) = (place.path().join("real"), place.path().join("policies"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert!(!read_folder(&real).unwrap().absent);
    let problems = read_folder(&link).unwrap_err();
    assert!(problems[0].message.contains("is a link"), "{problems:?}");
    assert!(read_folder(&place.path().join("none")).unwrap().absent);
}
