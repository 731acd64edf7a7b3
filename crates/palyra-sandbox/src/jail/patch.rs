//! Applying a unified diff to one file's content: pure.

use palyra_core::RunErrorKind;

use super::target::Refusal;

/// The name that stands for "no file" in a diff.
const NO_FILE: &[u8] = b"/dev/null";

/// The patched content and the number of hunks, or which hunk did not fit.
///
/// `base` is none when there is no such file, which only a diff from nothing (`--- /dev/null`) may
/// create. The names in the diff's header are not looked at otherwise: which file is patched was
/// decided, and is not the diff's to say.
pub(super) fn apply(base: Option<&[u8]>, diff: &str) -> Result<(Vec<u8>, usize), Refusal> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let new = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+hello\n";
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
    fn bytes_that_are_no_text_stay_as_they_are() {
        let (patched, _) = apply(
            Some(b"\xff\xfe\none\n"),
            "--- a\n+++ b\n@@ -2 +2 @@\n-one\n+two\n",
        )
        .unwrap();
        assert_eq!(patched, b"\xff\xfe\ntwo\n");
    }
}
