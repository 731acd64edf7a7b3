//! One call from proposal to attestation, and the yes that is spent once.

use palyra_core::corridor::{
    self, Admits, Attests, Decides, Evidence, Intent, PolicyAnswer, ToolDecision,
};
use palyra_core::entry::{Answer, Entry, Stream};
use palyra_core::facts::{Channel, Origin};
use palyra_core::json::canonical_bytes;
use palyra_core::{
    AgentName, ApprovalDecision, ApprovalId, Backing, Blob, BlobKind, CallDigest, CallId, Denial,
    DenialCode, DeviceId, Digest, DigestKey, Ending, ExecutionReport, GrantId, GrantTerms,
    PlanDigest, PlanSeal, Principal, Reach, RunId, ScopeKind, Timestamp, UserName, WhyEnded,
};
use palyra_journal::{CallRecorder, Expected, JournalStore};
use serde_json::json;

use crate::support::{Place, call, clock};

const NOW: Timestamp = Timestamp::from_millis(1_794_733_261_000);

fn agent() -> Principal {
    Principal::Agent {
        name: "helper".parse::<AgentName>().unwrap(),
        user: UserName::owner(),
    }
}

fn digest(of: &str) -> CallDigest {
    DigestKey::from_bytes([1; 32]).call_digest(&[of.as_bytes()])
}

fn plan(call: &CallId) -> PlanSeal {
    DigestKey::from_bytes([1; 32]).plan_seal(call, &PlanDigest(Digest::of(b"plan")))
}

/// A recorder of a call that was proposed and decided.
fn recorder(journal: &JournalStore, call: &CallId, answer: Answer) -> CallRecorder {
    let mut recorder = CallRecorder::new(journal.clone(), call.clone(), clock());
    let origin = Origin {
        principal: agent(),
        run: RunId::mint(NOW),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let arguments = Blob::new(BlobKind::Arguments, b"{}".to_vec());
    recorder.proposed("palyra.echo".parse().unwrap(), origin, arguments);
    decided(&mut recorder, answer);
    recorder
}

fn decided(recorder: &mut CallRecorder, answer: Answer) {
    let facts = Blob::new(BlobKind::Facts, b"{}".to_vec());
    recorder.decided(
        answer,
        vec!["p".to_owned()],
        "v1".to_owned(),
        digest("echo"),
        facts,
    );
}

fn intent<'a>(
    call: &'a CallId,
    digest: &'a CallDigest,
    plan: &'a PlanSeal,
    grant: Option<&'a Backing>,
) -> Intent<'a> {
    Intent {
        call,
        digest,
        plan,
        grant,
    }
}

async fn admit(
    recorder: &mut CallRecorder,
    of: &str,
    grant: Option<&ApprovalId>,
) -> Result<(), Denial> {
    let call = recorder.call().clone();
    let (digest, plan) = (digest(of), plan(&call));
    let backing = grant.map(|approval| Backing::Once(approval.clone()));
    let intent = intent(&call, &digest, &plan, backing.as_ref());
    recorder.admit(intent).await
}

fn report(ending: Ending) -> ExecutionReport {
    ExecutionReport {
        executor: "builtin".to_owned(),
        sandbox_enforcement: "none".to_owned(),
        layers: Vec::new(),
        started_at: NOW,
        ended_at: NOW,
        ending,
        truncated: false,
        running_as_root: false,
        network: None,
    }
}

/// A call that ran, after a person allowed it if they were `asked`.
pub(crate) async fn executed(journal: &JournalStore, asked: bool) -> CallId {
    let (mut recorder, approval) = if asked {
        let (recorder, approval) = answered(journal, Some(ApprovalDecision::Allow)).await;
        (recorder, Some(approval))
    } else {
        (recorder(journal, &call(), Answer::Permit), None)
    };
    admit(&mut recorder, "echo", approval.as_ref())
        .await
        .unwrap();
    let call = recorder.call().clone();
    let evidence = Evidence {
        call: &call,
        plan: &plan(&call),
        report: &report(Ending::Exited { code: 0 }),
        output: &json!({}),
    };
    recorder.attest(evidence).await.unwrap();
    call
}

fn kinds(journal: &JournalStore, stream: &Stream) -> Vec<&'static str> {
    let entries = journal.read_stream(stream).unwrap();
    entries
        .iter()
        .map(|recorded| recorded.entry.kind())
        .collect()
}

/// An approval that was asked for `echo` and answered like this.
async fn answered(
    journal: &JournalStore,
    answer: Option<ApprovalDecision>,
) -> (CallRecorder, ApprovalId) {
    let approval = ApprovalId::mint(NOW);
    let mut asking = recorder(journal, &call(), Answer::Ask);
    let question = Entry::ApprovalRequested {
        call: asking.call().clone(),
        principal: agent(),
        tool: "palyra.echo".parse().unwrap(),
        digest: digest("echo").recorded(asking.call()),
        arguments: Blob::new(BlobKind::Arguments, b"{}".to_vec()).commitment(),
        expires_at: NOW,
        session: None,
        risk: None,
        detached: false,
        approver: None,
        people: 1,
    };
    asking
        .request_approval(Stream::Approval(approval.clone()), question)
        .await
        .unwrap();
    if let Some(decision) = answer {
        let entry = Entry::ApprovalDecided {
            decision,
            decided_by: UserName::owner(),
            reason: None,
            from: None,
            grant: None,
            signed: None,
        };
        let stream = Stream::Approval(approval.clone());
        journal
            .append_if(stream, Expected::Revision(1), vec![entry])
            .await
            .unwrap();
    }
    decided(&mut asking, Answer::Permit);
    (asking, approval)
}

#[tokio::test]
async fn an_unasked_call_is_two_commits_with_all_its_blobs() {
    let place = Place::new();
    let journal = place.open();
    let id = call();
    let mut recorder = recorder(&journal, &id, Answer::Permit);
    assert_eq!(journal.head(), 0, "nothing is written before the admission");
    admit(&mut recorder, "echo", None).await.unwrap();
    assert_eq!(journal.unattested().unwrap(), std::slice::from_ref(&id));

    let output = json!({"text": "hällo", "a": [1, 2.5]});
    let evidence = Evidence {
        call: &id,
        plan: &plan(&id),
        report: &report(Ending::Exited { code: 0 }),
        output: &output,
    };
    let attestation = recorder.attest(evidence).await.unwrap();
    assert_eq!(
        (attestation.executed_at, attestation.timed_out),
        (NOW, false)
    );
    assert_eq!(journal.unattested().unwrap(), []);

    let stream = Stream::Call(id);
    let expected = ["proposed", "decided", "admitted", "finished", "attested"];
    assert_eq!(kinds(&journal, &stream), expected);
    let entries = journal.read_stream(&stream).unwrap();
    assert_eq!(entries.chunk_by(|one, next| one.at == next.at).count(), 2);

    let blob = journal
        .blob(&attestation.execution_sha256)
        .unwrap()
        .unwrap();
    assert_eq!(blob.kind, BlobKind::Output);
    assert_eq!(blob.bytes, canonical_bytes(&output));
    let committed = entries.iter().filter_map(|recorded| {
        if let Entry::Proposed { arguments, .. } = &recorded.entry {
            return Some(*arguments);
        }
        let Entry::Decided { facts, .. } = &recorded.entry else {
            return None;
        };
        Some(*facts)
    });
    let kept = committed.map(|commitment| journal.blob(&commitment).unwrap().unwrap().kind);
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [BlobKind::Arguments, BlobKind::Facts]
    );
}

#[tokio::test]
async fn a_timeout_shows_in_the_attestation() {
    let place = Place::new();
    let journal = place.open();
    let id = call();
    let mut recorder = recorder(&journal, &id, Answer::Permit);
    admit(&mut recorder, "echo", None).await.unwrap();
    let evidence = Evidence {
        call: &id,
        plan: &plan(&id),
        report: &report(Ending::TimedOut),
        output: &json!(null),
    };
    assert!(recorder.attest(evidence).await.unwrap().timed_out);
}

#[tokio::test]
async fn a_denied_call_is_closed_in_one_commit_and_stays_closed() {
    let place = Place::new();
    let journal = place.open();
    let id = call();
    let denial = Denial::new(DenialCode::DeniedByPolicy, "no", "nothing");
    let mut recorder = recorder(&journal, &id, Answer::Deny(denial.clone()));
    recorder.close(denial.clone()).await.unwrap();
    recorder.close(denial).await.unwrap();
    assert_eq!(
        kinds(&journal, &Stream::Call(id)),
        ["proposed", "decided", "closed"]
    );
    let late = admit(&mut recorder, "echo", None).await.unwrap_err();
    assert_eq!(late.code, DenialCode::JournalUnavailable);
    assert_eq!(journal.head(), 3);
}

#[tokio::test]
async fn a_recorder_takes_no_other_call() {
    let place = Place::new();
    let journal = place.open();
    let mut recorder = recorder(&journal, &call(), Answer::Permit);
    let (other, digest) = (call(), digest("echo"));
    let plan = plan(&other);
    let outcome = recorder.admit(intent(&other, &digest, &plan, None)).await;
    assert_eq!(outcome.unwrap_err().code, DenialCode::JournalUnavailable);
    assert_eq!(journal.head(), 0);
}

#[tokio::test]
async fn an_asked_call_spends_its_yes_with_its_admission() {
    let place = Place::new();
    let journal = place.open();
    let (mut recorder, approval) = answered(&journal, Some(ApprovalDecision::Allow)).await;
    admit(&mut recorder, "echo", Some(&approval)).await.unwrap();
    let stream = Stream::Approval(approval);
    assert_eq!(
        kinds(&journal, &stream),
        ["approval_requested", "approval_decided", "grant_spent"]
    );
    let stream = Stream::Call(recorder.call().clone());
    assert_eq!(
        kinds(&journal, &stream),
        ["proposed", "decided", "decided", "admitted"]
    );
}

#[tokio::test]
async fn what_is_no_yes_admits_nothing_and_can_still_be_closed() {
    let place = Place::new();
    let journal = place.open();
    for answer in [None, Some(ApprovalDecision::Deny)] {
        let (mut recorder, approval) = answered(&journal, answer).await;
        let denial = admit(&mut recorder, "echo", Some(&approval))
            .await
            .unwrap_err();
        assert_eq!(denial.code, DenialCode::GrantSpent);
        recorder.close(denial).await.unwrap();
        let stream = Stream::Call(recorder.call().clone());
        assert_eq!(
            kinds(&journal, &stream),
            ["proposed", "decided", "decided", "closed"]
        );
    }
    let unknown = ApprovalId::mint(NOW);
    let mut recorder = recorder(&journal, &call(), Answer::Permit);
    let denial = admit(&mut recorder, "echo", Some(&unknown))
        .await
        .unwrap_err();
    assert_eq!(denial.code, DenialCode::GrantSpent);
    assert_eq!(journal.unattested().unwrap(), []);
}

#[tokio::test]
async fn a_yes_to_one_call_does_not_admit_another() {
    let place = Place::new();
    let journal = place.open();
    let (mut recorder, approval) = answered(&journal, Some(ApprovalDecision::Allow)).await;
    let denial = admit(&mut recorder, "rm -rf", Some(&approval))
        .await
        .unwrap_err();
    assert_eq!(denial.code, DenialCode::PlanChanged);
    assert_eq!(journal.unattested().unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_race_for_one_yes_exactly_one_is_admitted() {
    let place = Place::new();
    let journal = place.open();
    for _ in 0..50 {
        let (_, approval) = answered(&journal, Some(ApprovalDecision::Allow)).await;
        let racers = (0..2).map(|_| {
            let (journal, approval) = (journal.clone(), approval.clone());
            tokio::spawn(async move {
                let mut racer = recorder(&journal, &call(), Answer::Permit);
                let outcome = admit(&mut racer, "echo", Some(&approval)).await;
                (racer.call().clone(), outcome)
            })
        });
        let racers: Vec<_> = racers.collect();
        let mut admitted = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                (call, Ok(())) => admitted.push(call),
                (call, Err(denial)) => {
                    assert_eq!(denial.code, DenialCode::GrantSpent);
                    assert_eq!(kinds(&journal, &Stream::Call(call)), [""; 0]);
                }
            }
        }
        let [winner] = admitted.as_slice() else {
            panic!("{} were admitted", admitted.len());
        };
        let approval = journal.read_stream(&Stream::Approval(approval)).unwrap();
        let spent = Entry::GrantSpent {
            call: winner.clone(),
        };
        assert_eq!(approval.last().unwrap().entry, spent);
        assert_eq!(approval.len(), 3);
    }
}

#[tokio::test]
async fn calls_cut_short_are_found_at_the_next_start() {
    let place = Place::new();
    let journal = place.open();
    let mut open = Vec::new();
    for number in 0..30 {
        let id = call();
        let mut recorder = recorder(&journal, &id, Answer::Permit);
        if number % 3 == 0 {
            continue; // Never admitted: nothing of it is there.
        }
        admit(&mut recorder, "echo", None).await.unwrap();
        if number % 3 == 1 {
            open.push(id);
            continue;
        }
        let denial = Denial::new(DenialCode::PlanChanged, "changed", "again");
        recorder.close(denial).await.unwrap();
    }
    drop(journal);
    open.sort();
    let journal = place.open();
    assert_eq!(journal.unattested().unwrap(), open);
    for id in &open {
        let stream = Stream::Call(id.clone());
        journal
            .append_if(stream, Expected::Any, vec![Entry::Interrupted])
            .await
            .unwrap();
    }
    assert_eq!(journal.unattested().unwrap(), []);
}

/// The whole corridor with the recorder as its ledger.
#[tokio::test]
async fn the_corridor_takes_the_recorder_for_its_ledger() {
    struct Yes;
    impl Decides for Yes {
        fn answer(&self, _: &palyra_core::Facts) -> Result<PolicyAnswer, Denial> {
            Ok(PolicyAnswer::Run {
                matched: vec!["yes".to_owned()],
            })
        }
    }
    struct Replies;
    impl corridor::Executes for Replies {
        type Plan = palyra_core::ReplyPlan;
        type Output = serde_json::Value;
        async fn run(
            &self,
            _: corridor::Running<'_>,
            plan: Self::Plan,
        ) -> (ExecutionReport, serde_json::Value) {
            (report(Ending::Exited { code: 0 }), plan.reply)
        }
    }
    let place = Place::new();
    let journal = place.open();
    let reply = palyra_core::ReplyPlan {
        reply: json!({"text": "hi"}),
    };
    let metadata = palyra_core::ToolMetadata {
        name: "palyra.echo".parse().unwrap(),
        description: String::new(),
        input_schema: json!({}),
        capabilities: std::collections::BTreeSet::new(),
        default_sensitive: false,
        max_input_bytes: 1,
        default_limits: palyra_core::Limits::default(),
    };
    let id = call();
    let facts = palyra_core::Facts::new(
        id.clone(),
        Origin {
            principal: agent(),
            run: RunId::mint(NOW),
            device: DeviceId::local(),
            channel: Channel::Cli,
            session: None,
        },
        &metadata,
        &palyra_core::ToolProposal {
            tool: metadata.name.clone(),
            arguments: palyra_core::CanonicalJson::parse(b"{}").unwrap(),
        },
        Vec::new(),
        None,
        palyra_core::Tier::Builtin,
        &reply,
        &DigestKey::from_bytes([1; 32]),
        NOW,
        1,
    );
    let mut recorder = recorder(&journal, &id, Answer::Permit);
    let ToolDecision::Permit(permit) = corridor::decide(&Yes, &facts) else {
        panic!("yes is yes");
    };
    let admitted = permit.admit(&mut recorder).await.unwrap();
    let finished = admitted.execute(&Replies, reply.clone()).await.unwrap();
    let (attestation, output) = finished.attest(&mut recorder).await.unwrap();
    assert_eq!(output, reply.reply);
    assert_eq!(attestation.plan, *facts.plan());
    assert_eq!(journal.unattested().unwrap(), []);
}

/// A grant for what `echo` does, as a person gave it.
async fn granted(journal: &JournalStore) -> GrantId {
    let id = GrantId::mint(NOW);
    let terms = GrantTerms {
        id: id.clone(),
        approval: ApprovalId::mint(NOW),
        call: call(),
        agent: "claude".parse().unwrap(),
        user: UserName::owner(),
        tool: "palyra.echo".parse().unwrap(),
        reach: Reach::Window,
        cover: ScopeKind::Tool,
        key: DigestKey::from_bytes([1; 32]).scope_key(&[b"tool"]),
        session: None,
        not_after: NOW,
        made_by: UserName::owner(),
        facts: Blob::new(BlobKind::Facts, b"{}".to_vec()).commitment(),
    };
    let made = Entry::GrantMade {
        terms: Box::new(terms),
    };
    journal
        .append_if(Stream::Grant(id.clone()), Expected::NoStream, vec![made])
        .await
        .unwrap();
    id
}

#[tokio::test]
async fn case_14_a_grant_that_ended_after_the_decision_admits_nothing() {
    let place = Place::new();
    let journal = place.open();
    let grant = granted(&journal).await;
    let backing = Backing::Standing(grant.clone());
    let admit_under = async |backing: &Backing| {
        let own = call();
        let mut recorder = recorder(&journal, &own, Answer::Permit);
        let (digest, plan) = (digest("echo"), plan(&own));
        let admitted = recorder.admit(intent(&own, &digest, &plan, Some(backing)));
        (
            admitted.await,
            journal.read_stream(&Stream::Call(own)).unwrap(),
        )
    };
    // As long as it is in force it serves many, and is not spent.
    for _ in 0..3 {
        let (admitted, entries) = admit_under(&backing).await;
        admitted.unwrap();
        let Some(Entry::Admitted {
            approval,
            grant: of,
            ..
        }) = entries.last().map(|recorded| &recorded.entry)
        else {
            panic!("{entries:?}")
        };
        assert_eq!((approval, of.as_ref()), (&None, Some(&grant)));
    }
    let ended = Entry::GrantEnded {
        why: WhyEnded::Revoked,
        by: Some(UserName::owner()),
    };
    journal
        .append_if(Stream::Grant(grant), Expected::Revision(1), vec![ended])
        .await
        .unwrap();
    let never_made = Backing::Standing(GrantId::mint(NOW));
    for backing in [&backing, &never_made] {
        let (admitted, entries) = admit_under(backing).await;
        assert_eq!(admitted.unwrap_err().code, DenialCode::GrantSpent);
        assert!(entries.is_empty(), "{entries:?}");
    }
}
