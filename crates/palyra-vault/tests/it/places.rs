//! Folders and files that are not what they must be.

use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{NOW, close, folder, get, new, not_run, open, put, refused};

fn mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_that_is_a_link_or_open_or_foreign_holds_no_vault() {
    let outer = folder();
    let real = outer.path().join("real");
    std::fs::create_dir(&real).unwrap();
    close(&real);
    let link = outer.path().join("link");
    symlink(&real, &link).unwrap();
    for wrong in [link, outer.path().join("none")] {
        let error = refused(open(&wrong));
        assert_eq!(error.code(), "vault_place", "{error}");
    }
    mode(&real, 0o755);
    let error = refused(open(&real)).to_string();
    assert!(error.contains("755") && error.contains("chmod"), "{error}");
    close(&real);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&real, Some(12_345), None).unwrap();
        let error = refused(open(&real)).to_string();
        assert!(error.contains("uid 12345"), "{error}");
        std::os::unix::fs::chown(&real, Some(0), None).unwrap();
    } else {
        not_run(
            "a folder of somebody else holds no vault",
            "needs root to give one away",
        );
    }
    assert!(open(&real).is_ok());
}

#[test]
fn a_file_that_is_a_link_or_open_to_others_is_refused() {
    for name in ["vault.db", "vault.key"] {
        let folder = folder();
        put(&open(folder.path()).unwrap(), "x", "value");
        let path = folder.path().join(name);
        mode(&path, 0o644);
        let error = refused(open(folder.path())).to_string();
        assert!(error.contains("open to others"), "{error}");
        mode(&path, 0o600);
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let error = refused(open(folder.path())).to_string();
        assert!(error.contains("not a plain file"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        assert_eq!(get(&open(folder.path()).unwrap(), "x").unwrap(), "value");
    }
}

#[test]
fn a_folder_that_was_replaced_is_not_written() {
    let outer = folder();
    let real = outer.path().join("vault");
    std::fs::create_dir(&real).unwrap();
    close(&real);
    let vault = open(&real).unwrap();
    put(&vault, "x", "before");
    let aside = outer.path().join("aside");
    std::fs::rename(&real, &aside).unwrap();
    std::fs::create_dir(&real).unwrap();
    close(&real);
    let error = refused(vault.put(&new("x", b"after"), NOW)).to_string();
    assert!(error.contains("replaced"), "{error}");
    assert_eq!(get(&vault, "x").unwrap(), "before");
    std::fs::remove_dir(&real).unwrap();
    std::fs::rename(&aside, &real).unwrap();
    assert_eq!(put(&vault, "x", "after"), 2);
}

#[test]
fn another_database_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("vault.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(database);
    mode(&path, 0o600);
    assert_eq!(refused(open(folder.path())).code(), "vault_damaged");
    let database = rusqlite::Connection::open(&path).unwrap();
    assert!(database.execute_batch("SELECT x FROM t").is_ok());
}
