//! File tools: what they do, and what they refuse.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use palyra_core::FileOperation;
use serde_json::json;

use super::fixture::House;

fn read(path: &str) -> FileOperation {
    FileOperation::Read {
        path: path.into(),
        max_bytes: 1 << 20,
    }
}

fn list(path: &str) -> FileOperation {
    FileOperation::List {
        path: path.into(),
        max_entries: 100,
    }
}

fn write(path: &str, content: &str) -> FileOperation {
    FileOperation::Write {
        path: path.into(),
        content: content.to_owned(),
        create_parents: false,
    }
}

fn patch(path: &str, patch: &str) -> FileOperation {
    FileOperation::ApplyPatch {
        path: path.into(),
        patch: patch.to_owned(),
    }
}

fn link(house: &House, target: impl AsRef<std::path::Path>, name: &str) {
    let path = house.path("work").join(name);
    std::os::unix::fs::symlink(target, &path).unwrap();
    house.give(&path);
}

#[tokio::test]
async fn reading() {
    for house in House::every().await {
        house.put("text", "grüße\n".as_bytes());
        let ran = house.file(read("text")).await;
        let expected = json!({ "text": "grüße\n", "bytes": 8, "size": 8, "truncated": false });
        assert_eq!(ran.output, expected, "{:?}", ran.report);
        for layer in ["landlock", "seccomp", "no_new_privs", "uid", "rlimits"] {
            assert!(ran.layer(layer).is_some(), "{layer}");
        }

        house.put("bytes", b"\xff\x00");
        let ran = house.file(read("bytes")).await;
        assert_eq!(ran.output["base64"], "/wA=");

        let operation = FileOperation::Read {
            path: "text".into(),
            max_bytes: 3,
        };
        let ran = house.file(operation).await;
        // The third byte is half a character.
        let expected = json!({ "text": "gr", "bytes": 2, "size": 8, "truncated": true });
        assert_eq!(ran.output, expected);
        assert!(ran.report.truncated);

        let large = "a\u{1}".repeat(2 << 20);
        house.put("large", large.as_bytes());
        let operation = FileOperation::Read {
            path: "large".into(),
            max_bytes: 64 << 20,
        };
        assert_eq!(house.file(operation).await.output["text"], large);
    }
}

#[tokio::test]
async fn listing() {
    for house in House::every().await {
        house.put("b", b"12");
        std::fs::create_dir(house.path("work/a")).unwrap();
        link(&house, "b", "c");
        let expected = json!({ "entries": [
            { "name": "a", "kind": "folder" },
            { "name": "b", "kind": "file", "size": 2 },
            { "name": "c", "kind": "link" },
        ], "truncated": false });
        for path in ["", ".", "a/.."] {
            assert_eq!(house.file(list(path)).await.output, expected);
        }
        let operation = FileOperation::List {
            path: ".".into(),
            max_entries: 2,
        };
        let ran = house.file(operation).await;
        assert_eq!(ran.output["entries"].as_array().unwrap().len(), 2);
        assert_eq!(ran.output["entries"][1]["name"], "b");
        assert!(ran.report.truncated);

        let name = OsString::from_vec(b"a/\xff".to_vec());
        std::fs::write(house.path("work").join(name), "").unwrap();
        let ran = house.file(list("a")).await;
        let exact = ran.output["entries"][0]["name_base64"].as_str().unwrap();
        let exact = base64::engine::general_purpose::STANDARD
            .decode(exact)
            .unwrap();
        assert_eq!(exact, b"\xff");
    }
}

#[tokio::test]
async fn writing() {
    for house in House::every().await {
        let ran = house.file(write("new", "one")).await;
        assert_eq!(
            ran.output,
            json!({ "bytes": 3, "created": true }),
            "{:?}",
            ran.report
        );
        let path = house.path("work/new");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        let ran = house.file(write("new", "two!")).await;
        assert_eq!(ran.output, json!({ "bytes": 4, "created": false }));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two!");
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o750);

        let ran = house.file(write("x/y/z", "deep")).await;
        assert_eq!(ran.failed().0, "invalid_input");
        let operation = FileOperation::Write {
            path: "x/y/z".into(),
            content: "deep".to_owned(),
            create_parents: true,
        };
        assert_eq!(house.file(operation).await.output["created"], true);
        assert_eq!(
            std::fs::read_to_string(house.path("work/x/y/z")).unwrap(),
            "deep"
        );

        // A file that cannot be written whole is not written at all.
        let mut plan = house.file_plan(write("new", &"x".repeat(10_000)));
        plan.limits.file_size = 4_096;
        assert_eq!(
            house.run_file_plan(plan).await.failed().0,
            "runtime_failure"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two!");
        let left = std::fs::read_dir(house.path("work")).unwrap().count();
        assert_eq!(left, 2, "a temporary file was left");
    }
}

#[tokio::test]
async fn patching() {
    for house in House::every().await {
        house.put("file", b"one\ntwo\nthree\n");
        let good = "--- a/file\n+++ b/file\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
        let ran = house.file(patch("file", good)).await;
        assert_eq!(
            ran.output,
            json!({ "hunks": 1, "bytes": 12, "created": false })
        );
        let path = house.path("work/file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n2\nthree\n");
        let ran = house.file(patch("file", good)).await;
        let (kind, message) = ran.failed();
        assert_eq!(kind, "invalid_input");
        assert!(message.contains("hunk #1"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n2\nthree\n");
        let new = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+hello\n";
        assert_eq!(house.file(patch("new", new)).await.output["created"], true);
    }
}

#[tokio::test]
async fn a_patch_names_its_file_and_that_is_not_too_large() {
    for house in House::every().await {
        house.put("file", b"one\n");
        let other = "--- a/other\n+++ b/other\n@@ -1 +1 @@\n-one\n+two\n";
        let ran = house.file(patch("file", other)).await;
        let (kind, message) = ran.failed();
        assert_eq!(kind, "invalid_input");
        assert!(
            message.contains("for `a/other`, not for `file`"),
            "{message}"
        );

        let good = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n";
        let limited = |bytes| {
            let mut plan = house.file_plan(patch("file", good));
            plan.limits.output_bytes = bytes;
            plan
        };
        let ran = house.run_file_plan(limited(3)).await;
        let (kind, message) = ran.failed();
        assert_eq!(kind, "invalid_input");
        assert!(message.contains("more than 3 bytes"), "{message}");
        let path = house.path("work/file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
        house.run_file_plan(limited(4)).await.ok();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    }
}

#[tokio::test]
async fn paths_that_leave_the_workspace_are_refused() {
    for house in House::every().await {
        house.put("inside", b"x");
        std::fs::write(house.path("outside"), "outside").unwrap();
        std::fs::set_permissions(
            house.path("outside"),
            std::fs::Permissions::from_mode(0o666),
        )
        .unwrap();
        link(&house, "../outside", "out");
        link(&house, house.path("outside"), "absolute");
        link(&house, "..", "up");
        link(&house, "/", "root");
        for path in [
            "../outside",
            "/etc/passwd",
            "out",
            "absolute",
            "up/outside",
            "root/etc/passwd",
            "up/work/inside",
        ] {
            for operation in [read(path), list(path), write(path, "x"), patch(path, "x")] {
                let ran = house.file(operation).await;
                let (kind, message) = ran.failed();
                assert_eq!(kind, "workspace_scope_denied", "{path}: {message}");
            }
        }
        assert_eq!(
            std::fs::read_to_string(house.path("outside")).unwrap(),
            "outside"
        );
        for path in ["/proc/self/root/etc/passwd", "/proc/self/environ"] {
            assert_eq!(
                house.file(read(path)).await.failed().0,
                "workspace_scope_denied"
            );
        }
    }
}

#[tokio::test]
async fn links_that_stay_are_followed() {
    for house in House::every().await {
        std::fs::create_dir(house.path("work/d")).unwrap();
        house.give(&house.path("work/d"));
        house.put("d/file", b"x");
        link(&house, "d/file", "to-file");
        link(&house, "d", "to-folder");
        link(&house, "../d/file", "d/around");
        for (number, path) in ["to-file", "to-folder/file", "to-folder/around"]
            .into_iter()
            .enumerate()
        {
            assert!(
                house.file(read(path)).await.output["text"].is_string(),
                "{path}"
            );
            let content = number.to_string();
            house.file(write(path, &content)).await.ok();
            assert_eq!(
                std::fs::read_to_string(house.path("work/d/file")).unwrap(),
                content
            );
        }
        assert!(
            house.path("work/to-file").is_symlink(),
            "the link itself stays"
        );
        link(&house, "loop", "loop");
        assert_eq!(house.file(read("loop")).await.failed().0, "invalid_input");
        assert_eq!(
            house.file(write("loop", "x")).await.failed().0,
            "invalid_input"
        );
    }
}

#[tokio::test]
async fn what_is_not_a_file_is_refused() {
    for house in House::every().await {
        let fifo = house.path("work/fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        house.give(&fifo);
        std::fs::create_dir(house.path("work/folder")).unwrap();
        house.put("file", b"x");
        for path in ["fifo", "folder", "missing", "file/below", "", "."] {
            assert_eq!(
                house.file(read(path)).await.failed().0,
                "invalid_input",
                "{path}"
            );
        }
        for path in ["fifo", "folder", "file/below", "", "."] {
            assert_eq!(
                house.file(write(path, "x")).await.failed().0,
                "invalid_input",
                "{path}"
            );
        }
        assert_eq!(house.file(list("file")).await.failed().0, "invalid_input");
        assert_eq!(house.file(read("a\0b")).await.failed().0, "invalid_input");
    }
}

#[tokio::test]
async fn the_masked_folder_is_refused_wherever_the_workspace_is() {
    for house in House::every().await {
        let with = |workspace: &str, operation| {
            let mut plan = house.file_plan(operation);
            plan.workspace = house.path(workspace);
            plan
        };
        // Around it.
        for (workspace, path) in [("deep", "home"), ("", "deep/home")] {
            for operation in [
                read(&format!("{path}/secret")),
                list(path),
                list(&format!("{path}/inner")),
                write(&format!("{path}/secret"), "x"),
                write(&format!("{path}/new"), "x"),
            ] {
                let ran = house.run_file_plan(with(workspace, operation)).await;
                assert_eq!(
                    ran.failed().0,
                    "workspace_scope_denied",
                    "{}",
                    ran.failed().1
                );
            }
        }
        let ran = house.run_file_plan(with("deep", read("beside"))).await;
        assert_eq!(ran.output["text"], "not secret", "{:?}", ran.report);
        // Inside it.
        for workspace in ["deep/home", "deep/home/inner"] {
            let ran = house.run_file_plan(with(workspace, read("secret"))).await;
            assert_eq!(ran.failed().0, "workspace_scope_denied");
        }
        // By a link beneath the workspace.
        let ran = house
            .run_file_plan(with("", read("deep/home/../home/secret")))
            .await;
        assert_eq!(ran.failed().0, "workspace_scope_denied");
        assert!(house.path("deep/home/secret").exists());
    }
}

/// The file belongs to somebody else: the tool has no more rights than its owner.
#[tokio::test]
async fn a_file_tool_has_no_more_rights_than_a_process() {
    for house in House::every().await {
        if !matches!(house.run_as, palyra_core::plan::RunAs::Owner { .. }) {
            continue;
        }
        std::fs::write(house.path("work/roots"), "x").unwrap();
        std::fs::set_permissions(
            house.path("work/roots"),
            std::fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        let ran = house.file(read("roots")).await;
        assert_eq!(ran.failed().0, "runtime_failure");
        assert!(
            ran.failed().1.contains("Permission denied"),
            "{}",
            ran.failed().1
        );
    }
}

#[tokio::test]
async fn a_workspace_that_is_not_there_is_said() {
    let house = House::new().await;
    let mut plan = house.file_plan(read("x"));
    plan.workspace = house.path("missing");
    assert_eq!(house.run_file_plan(plan).await.failed().0, "invalid_input");
}
