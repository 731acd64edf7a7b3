//! Applying a unified diff to one file's content: pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use palyra_core::RunErrorKind;

use super::target::Refusal;

/// The name that stands for "no file" in a diff.
const NO_FILE: &[u8] = b"/dev/null";

/// The patched content and the number of hunks, or which hunk did not fit.
///
/// `base` is none when there is no such file, which only a diff from nothing (`--- /dev/null`) may
/// create. Which file is patched was decided and is not the diff's to say, but a diff that names
/// another one than `path` is refused: whoever reads it would take it for that file's.
pub(super) fn apply(
    path: &Path,
    base: Option<&[u8]>,
    diff: &str,
) -> Result<(Vec<u8>, usize), Refusal> {
    let wrong = |message: String| Refusal::new(RunErrorKind::InvalidInput, message);
    let files = diffy::patch_set::PatchSet::parse(diff, diffy::patch_set::ParseOptions::unidiff());
    if files.filter(Result::is_ok).count() > 1 {
        return Err(wrong("the patch is for more than one file".to_owned()));
    }
    let patch = diffy::Patch::from_bytes(diff.as_bytes())
        .map_err(|error| wrong(format!("the patch cannot be read: {error}")))?;
    if patch.hunks().is_empty() {
        return Err(wrong("the patch changes nothing".to_owned()));
    }
    if patch.modified() == Some(NO_FILE) {
        return Err(wrong(
            "the patch deletes the file, which this tool does not do".to_owned(),
        ));
    }
    for name in [patch.original(), patch.modified()].into_iter().flatten() {
        if name != NO_FILE && !is_name_of(path, name) {
            return Err(wrong(format!(
                "the patch is for `{}`, not for `{}`",
                String::from_utf8_lossy(name).escape_debug(),
                path.display()
            )));
        }
    }
    let base = match base {
        Some(base) => base,
        None if patch.original() == Some(NO_FILE) => b"",
        None => return Err(wrong("there is no such file to patch".to_owned())),
    };
    let patched = diffy::apply_bytes(base, &patch).map_err(|error| {
        wrong(format!(
            "the patch does not fit, nothing was changed: {error}"
        ))
    })?;
    Ok((patched, patch.hunks().len()))
}

/// Whether a header's name means `path`: as it is, or behind the `a/` or `b/` that git puts there.
fn is_name_of(path: &Path, name: &[u8]) -> bool {
    let parts = |path: &Path| -> Vec<_> {
        let parts = path.components().filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let path = parts(path);
    [b"".as_slice(), b"a/", b"b/"]
        .into_iter()
        .filter_map(|prefix| name.strip_prefix(prefix))
        .any(|name| parts(Path::new(OsStr::from_bytes(name))) == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(base: Option<&[u8]>, diff: &str) -> Result<(Vec<u8>, usize), Refusal> {
        super::apply(Path::new("file"), base, diff)
    }

    const BASE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
    const DIFF: &str = "\
--- a/file
+++ b/file
@@ -1,3 +1,3 @@
 one
-two
+2
 three
@@ -5,3 +5,2 @@
 five
-six
 seven
";

    fn why(base: Option<&str>, diff: &str) -> String {
        let refusal = apply(base.map(str::as_bytes), diff).unwrap_err();
        assert_eq!(refusal.kind, RunErrorKind::InvalidInput);
        refusal.message
    }

    #[test]
    fn hunks_are_applied() {
        let (patched, hunks) = apply(Some(BASE.as_bytes()), DIFF).unwrap();
        assert_eq!(patched, b"one\n2\nthree\nfour\nfive\nseven\n");
        assert_eq!(hunks, 2);
        let git = format!("diff --git a/file b/file\nindex 1111111..2222222 100644\n{DIFF}");
        assert_eq!(apply(Some(BASE.as_bytes()), &git).unwrap().0, patched);
    }

    #[test]
    fn the_hunk_that_does_not_fit_is_named() {
        let other = BASE.replace("six", "6");
        assert!(why(Some(&other), DIFF).contains("hunk #2"));
    }

    #[test]
    fn a_file_is_made_only_from_nothing() {
        let new = "--- /dev/null\n+++ b/file\n@@ -0,0 +1 @@\n+hello\n";
        assert_eq!(apply(None, new).unwrap().0, b"hello\n");
        assert!(why(None, DIFF).contains("no such file"));
    }

    #[test]
    fn what_is_not_one_change_to_one_file_is_refused() {
        assert!(why(Some(BASE), "").contains("nothing") || why(Some(BASE), "").contains("read"));
        assert!(!why(Some(BASE), "hello\n").is_empty());
        let two = format!("{DIFF}--- a/other\n+++ b/other\n@@ -1 +1 @@\n-a\n+b\n");
        assert!(why(Some(BASE), &two).contains("more than one"));
        let gone = "--- a/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n";
        assert!(why(Some("one\n"), gone).contains("deletes"));
    }

    #[test]
    fn a_patch_for_another_file_is_refused() {
        let header = |original: &str, modified: &str| {
            format!("--- {original}\n+++ {modified}\n@@ -1 +1 @@\n-a\n+b\n")
        };
        let apply = |path: &str, diff: &str| super::apply(Path::new(path), Some(b"a\n"), diff);
        for name in ["d/file", "a/d/file", "b/d/file", "./d/file", "\"a/d/file\""] {
            assert!(apply("d/file", &header(name, name)).is_ok(), "{name}");
        }
        assert!(apply("a/file", &header("a/file", "b/a/file")).is_ok());
        assert!(apply("d/file", "@@ -1 +1 @@\n-a\n+b\n").is_ok());
        for (original, modified) in [
            ("a/d/file", "b/d/other"),
            ("a/other", "b/d/file"),
            ("/dev/null", "b/other"),
            ("a/file", "b/file"),
            ("c/d/file", "c/d/file"),
            ("a/d/../d/file", "b/d/file"),
            ("/d/file", "/d/file"),
        ] {
            let refusal = apply("d/file", &header(original, modified)).unwrap_err();
            assert_eq!(refusal.kind, RunErrorKind::InvalidInput);
            assert!(
                refusal.message.contains("not for `d/file`"),
                "{}",
                refusal.message
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let (patched, _) = apply(
            Some(b"\xff\xfe\none\n"),
            "--- file\n+++ ./file\t2026-01-01\n@@ -2 +2 @@\n-one\n+two\n",
        )
        .unwrap();
        assert_eq!(patched, b"\xff\xfe\ntwo\n");
    }
}
