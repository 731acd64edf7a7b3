//! Attestations that are handed on: one file, which proves itself.

use palyra_core::CallId;
use palyra_core::entry::{Entry, Stream};
use palyra_journal::{AttestationFile, JournalKeys, JournalStore, NotAttested};

use crate::recording::executed;
use crate::support::{Place, keys, started};

/// A call that a person allowed and that ran, among others.
async fn attested() -> (Place, JournalStore, CallId) {
    let place = Place::new();
    let journal = place.open();
    let call = executed(&journal, true).await;
    let _other = executed(&journal, false).await;
    (place, journal, call)
}

fn file(journal: &JournalStore, call: &CallId) -> Vec<u8> {
    journal.attestation(call).unwrap().unwrap().to_bytes()
}

fn verify(bytes: &[u8]) -> Result<palyra_journal::Attested, NotAttested> {
    AttestationFile::parse(bytes)?.verify()
}

#[tokio::test]
async fn the_statement_says_what_the_record_says() {
    let (_place, journal, call) = attested().await;
    let attested = verify(&file(&journal, &call)).unwrap();
    assert_eq!(attested.key, journal.key().unwrap());
    let statement = &attested.statement;
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    let entries = journal.read_stream(&Stream::Call(call.clone())).unwrap();
    let Some(Entry::Attested { attestation }) = entries.last().map(|last| &last.entry) else {
        panic!("{entries:?}")
    };
    let hex = attestation.execution_sha256.0.to_string();
    let subject = &statement["subject"][0];
    assert_eq!(subject["name"], call.as_str());
    assert_eq!(
        format!("sha256:{}", subject["digest"]["sha256"].as_str().unwrap()),
        hex
    );
    let predicate = &statement["predicate"];
    assert_eq!(predicate["proposal"]["tool"], "palyra.echo");
    assert_eq!(predicate["approval"]["decision"], "allow");
    assert_eq!(predicate["approval"]["decided_by"], "owner");
    assert_eq!(predicate["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(
        predicate["plan"],
        serde_json::to_value(attestation.plan).unwrap()
    );
    assert!(predicate["execution"]["layers"].is_array());
    let text = statement.to_string();
    assert!(
        !text.contains("\"digest\":\"sha256"),
        "the keyed digest stays here: {text}"
    );
}

#[tokio::test]
async fn no_changed_byte_of_an_attestation_is_accepted() {
    let (_place, journal, call) = attested().await;
    let honest = file(&journal, &call);
    verify(&honest).unwrap();
    for place in 0..honest.len() {
        let mut changed = honest.clone();
        changed[place] ^= 1 << (place % 8);
        assert!(verify(&changed).is_err(), "byte {place}");
    }
    for length in (0..honest.len()).step_by(7) {
        assert!(verify(&honest[..length]).is_err(), "cut at {length}");
    }
}

/// Parts of true files, put together to say something else.
#[tokio::test]
async fn parts_of_true_attestations_do_not_make_another() {
    let (_place, journal, call) = attested().await;
    let other = executed(&journal, true).await;
    let json =
        |call| -> serde_json::Value { serde_json::from_slice(&file(&journal, call)).unwrap() };
    let (one, two) = (json(&call), json(&other));
    for part in ["entries", "envelope", "checkpoint"] {
        let mut mixed = one.clone();
        mixed[part] = two[part].clone();
        let mut bytes = palyra_core::json::canonical_bytes(&mixed);
        bytes.push(b'\n');
        // The checkpoints are of one and the same journal, but the proofs lead to one root.
        assert!(verify(&bytes).is_err() || mixed == one, "{part}");
    }
    let entries = one["entries"].as_array().unwrap().len();
    for place in 0..entries {
        let mut less = one.clone();
        less["entries"].as_array_mut().unwrap().remove(place);
        let mut bytes = palyra_core::json::canonical_bytes(&less);
        bytes.push(b'\n');
        assert!(verify(&bytes).is_err(), "without entry {place}");
    }
}

#[tokio::test]
async fn a_forger_needs_the_key() {
    let (_place, journal, call) = attested().await;
    let forged = Place::new();
    let forger = forged.open_keyed(JournalKeys::generate().unwrap());
    let lie = executed(&forger, true).await;
    let attested = verify(&file(&forger, &lie)).unwrap();
    assert_ne!(
        attested.key,
        journal.key().unwrap(),
        "it fits together, under their own key"
    );
    let mut file: serde_json::Value = serde_json::from_slice(&file(&forger, &lie)).unwrap();
    file["key"] = journal.key().unwrap().to_string().into();
    let mut bytes = palyra_core::json::canonical_bytes(&file);
    bytes.push(b'\n');
    assert!(matches!(verify(&bytes), Err(NotAttested::Checkpoint(_))));
    let _ = call;
}

#[tokio::test]
async fn a_call_that_did_not_run_has_none() {
    let (_place, journal, _call) = attested().await;
    let call = crate::support::call();
    assert_eq!(journal.attestation(&call).unwrap(), None);
    let append = journal.append_if(
        Stream::Call(call.clone()),
        palyra_journal::Expected::NoStream,
        vec![started("x")],
    );
    append.await.unwrap();
    assert_eq!(journal.attestation(&call).unwrap(), None);
}

/// The key changed since: the new one stands for the old record, because its checkpoint covers it.
#[tokio::test]
async fn an_attestation_outlives_the_key_of_its_time() {
    let (place, journal, call) = attested().await;
    drop(journal);
    let journal = place.open_keyed(keys().rotated().unwrap());
    let attested = verify(&file(&journal, &call)).unwrap();
    assert_eq!(attested.key, journal.key().unwrap());
}
