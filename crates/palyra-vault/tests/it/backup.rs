//! A backup is an age file: others can read it, and a damaged one changes nothing.

use palyra_core::SecretValue;
use palyra_vault::keystore::Passphrase;
use palyra_vault::{Opener, Wrapping};

use crate::support::{NOW, folder, get, open, put};

#[test]
fn what_is_exported_comes_back_elsewhere() {
    let (one, other) = (folder(), folder());
    let vault = open(one.path()).unwrap();
    put(&vault, "a", "one");
    put(&vault, "a", "two");
    put(&vault, "agent:x/b", "b");
    let key = age::x25519::Identity::generate();
    let recipients = Wrapping::Recipients(vec![key.to_public().to_string()]);
    let file = vault.export(&recipients, NOW).unwrap();
    assert!(file.starts_with(b"age-encryption.org/v1"));
    let plain = age::decrypt(&key, &file).unwrap();
    assert!(
        plain.windows(4).any(|window| window == b"dHdv"),
        "others read it"
    );
    use age::secrecy::ExposeSecret;
    let text = format!("# comment\n{}\n", key.to_string().expose_secret());
    let opener = Opener::Identity(SecretValue::new(text.into_bytes()));
    let target = open(other.path()).unwrap();
    put(&target, "a", "mine");
    for place in [0, 30, file.len() / 2, file.len() - 1] {
        let mut wrong = file.clone();
        wrong[place] ^= 1;
        let error = target.import(&wrong, &opener, NOW).unwrap_err();
        assert_eq!(error.code(), "backup_not_opened");
    }
    assert_eq!(get(&target, "a").unwrap(), "mine");
    assert_eq!(target.import(&file, &opener, NOW).unwrap().secrets, 2);
    assert_eq!(get(&target, "a").unwrap(), "two");
    assert_eq!(get(&target, "agent:x/b").unwrap(), "b");
}

#[test]
fn a_passphrase_seals_a_backup_too_and_nobody_is_nobody() {
    let folder = folder();
    let vault = open(folder.path()).unwrap();
    put(&vault, "a", "one");
    let pass = |text: &str| Passphrase::new(text.to_owned());
    let file = vault
        .export(&Wrapping::Passphrase(pass("pass phrase")), NOW)
        .unwrap();
    let error = vault
        .import(&file, &Opener::Passphrase(pass("other")), NOW)
        .unwrap_err();
    assert_eq!(error.code(), "backup_not_opened");
    assert!(
        vault
            .import(&file, &Opener::Passphrase(pass("pass phrase")), NOW)
            .is_ok()
    );
    for wrong in [vec![], vec!["age1nonsense".to_owned()]] {
        let error = vault.export(&Wrapping::Recipients(wrong), NOW).unwrap_err();
        assert_eq!(error.code(), "bad_recipient");
    }
}
