//! Each step, what it leaves behind, and what is refused.

use palyra_approval::{
    ApprovalPromptRecord, ApprovalState, ApprovalsFold, GRANT_LIFETIME, MAX_REASON_BYTES, Refused,
    apply_tool_approval_outcome, cancel, decide, expire, grant,
};
use palyra_core::entry::{Entry, Fold as _, Recorded};
use palyra_core::facts::Origin;
use palyra_core::{
    ApprovalDecision, CallId, CanonicalJson, Channel, DenialCode, DeviceId, DigestKey, Facts,
    Limits, ReplyPlan, RunId, Tier, ToolMetadata, ToolProposal, UserName,
};

use crate::fixture::{EXPIRES, Journal, START, agent, digest, later, owner, pending};

fn allowed() -> Journal {
    let mut journal = Journal::asked(agent("claude"));
    let yes = decide(
        &journal.record(),
        ApprovalDecision::Allow,
        &owner(),
        None,
        later(1_000),
    );
    assert!(journal.append(&yes.unwrap(), later(1_001)));
    journal
}

#[test]
fn asking_leaves_a_pending_record() {
    let record = Journal::asked(agent("claude")).record();
    assert_eq!(record.state, ApprovalState::Pending);
    assert_eq!(
        (record.requested_at, record.expires_at, record.revision),
        (START, EXPIRES, 1)
    );
    assert_eq!(
        (
            record.decided_by.as_ref(),
            record.decided_at,
            &record.reason
        ),
        (None, None, &None)
    );
    assert_eq!(grant(&record, &digest("git push")), None);
}

#[test]
fn a_yes_is_a_grant_for_the_exact_call_and_is_spent_once() {
    let mut journal = allowed();
    let record = journal.record();
    assert_eq!((record.state, record.revision), (ApprovalState::Allowed, 2));
    assert_eq!(record.decided_by, Some(UserName::owner()));

    let yes = grant(&record, &digest("git push")).unwrap();
    assert_eq!(yes.approval, record.id);
    assert_eq!(yes.agent.as_str(), "claude");
    assert_eq!(yes.digest, digest("git push"));
    assert_eq!(grant(&record, &digest("git pull")), None, "another call");
    assert_eq!(yes.people, 1);
    // Counted from when the answer was recorded.
    assert_eq!(yes.not_after, later(1_001).plus(GRANT_LIFETIME));

    assert!(journal.spend(&record.call, later(2_000)));
    assert!(!journal.spend(&record.call, later(2_001)));
    let spent = journal.record();
    assert_eq!((spent.state, spent.revision), (ApprovalState::Spent, 3));
    assert_eq!(spent.spent_by, Some(record.call));
    assert_eq!(grant(&spent, &digest("git push")), None);
}

#[test]
fn a_no_keeps_its_reason_and_grants_nothing() {
    let mut journal = Journal::asked(agent("claude"));
    let no = decide(
        &journal.record(),
        ApprovalDecision::Deny,
        &owner(),
        Some("  not on a friday "),
        later(1),
    );
    assert!(journal.append(&no.unwrap(), later(2)));
    let record = journal.record();
    assert_eq!(record.state, ApprovalState::Denied);
    assert_eq!(record.reason.as_deref(), Some("not on a friday"));
    assert_eq!(grant(&record, &digest("git push")), None);
}

#[test]
fn of_two_answers_one_wins_and_the_other_learns_who() {
    let mut journal = Journal::asked(agent("claude"));
    let seen_by_both = journal.record();
    let answer = |decision| decide(&seen_by_both, decision, &owner(), None, later(5)).unwrap();
    let (yes, no) = (
        answer(ApprovalDecision::Allow),
        answer(ApprovalDecision::Deny),
    );
    assert!(journal.append(&no, later(6)));
    assert!(!journal.append(&yes, later(6)));

    let again = decide(
        &journal.record(),
        ApprovalDecision::Allow,
        &owner(),
        None,
        later(7),
    );
    let refused = again.unwrap_err();
    assert_eq!(
        refused,
        Refused::AlreadyDecided {
            id: seen_by_both.id,
            by: UserName::owner(),
            at: later(6),
            state: ApprovalState::Denied,
        }
    );
    assert_eq!(refused.code(), "already_decided");
    assert!(refused.to_string().contains("denied by `owner`"));
    assert!(refused.hint().contains("palyra approvals show appr_"));
}

#[test]
fn an_agent_never_decides() {
    let record = Journal::asked(agent("claude")).record();
    for name in ["claude", "codex", "owner"] {
        for decision in [ApprovalDecision::Allow, ApprovalDecision::Deny] {
            let refused = decide(&record, decision, &agent(name), None, later(1)).unwrap_err();
            assert_eq!(refused.code(), "agent_may_not_decide");
        }
    }
}

#[test]
fn the_last_instant_is_too_late() {
    let record = Journal::asked(agent("claude")).record();
    let at = |now| decide(&record, ApprovalDecision::Allow, &owner(), None, now);
    assert!(at(later(599_999)).is_ok());
    for now in [EXPIRES, later(600_001)] {
        assert_eq!(at(now).unwrap_err().code(), "approval_expired");
    }
    assert_eq!(
        expire(&record, later(599_999)).unwrap_err().code(),
        "not_expired_yet"
    );
    assert!(expire(&record, EXPIRES).is_ok());
}

#[test]
fn what_is_over_stays_over() {
    let ends: [fn(&mut Journal); 4] = [
        |journal| {
            let step = expire(&journal.record(), EXPIRES).unwrap();
            assert!(journal.append(&step, EXPIRES));
            assert_eq!(journal.record().state, ApprovalState::Expired);
        },
        |journal| {
            let step = cancel(&journal.record(), "the caller hung up").unwrap();
            assert!(journal.append(&step, later(9)));
            assert_eq!(journal.record().state, ApprovalState::Cancelled);
        },
        |journal| *journal = allowed(),
        |journal| {
            *journal = allowed();
            assert!(journal.spend(&CallId::mint(START), later(3_000)));
        },
    ];
    for end in ends {
        let mut journal = Journal::asked(agent("claude"));
        end(&mut journal);
        let record = journal.record();
        let decided = decide(&record, ApprovalDecision::Allow, &owner(), None, later(10));
        for refused in [
            decided.unwrap_err(),
            expire(&record, EXPIRES).unwrap_err(),
            cancel(&record, "again").unwrap_err(),
        ] {
            assert!(refused.hint().contains("palyra approvals"), "{refused}");
        }
    }
}

#[test]
fn reasons_are_bounded() {
    let record = Journal::asked(agent("claude")).record();
    let decide = |reason: &str| {
        decide(
            &record,
            ApprovalDecision::Deny,
            &owner(),
            Some(reason),
            later(1),
        )
    };
    assert!(decide(&"x".repeat(MAX_REASON_BYTES)).is_ok());
    assert_eq!(
        decide(&"x".repeat(MAX_REASON_BYTES + 1)).unwrap_err(),
        Refused::ReasonTooLong {
            bytes: MAX_REASON_BYTES + 1
        }
    );
    let Entry::ApprovalDecided { reason, .. } = decide("   ").unwrap().entry else {
        panic!("not a decision");
    };
    assert_eq!(reason, None);

    // What the daemon says itself is cut, between characters.
    let cut = cancel(&record, &"ü".repeat(MAX_REASON_BYTES)).unwrap();
    let Entry::ApprovalCancelled { reason } = cut.entry else {
        panic!("not a cancellation");
    };
    assert_eq!(reason.len(), MAX_REASON_BYTES);
}

/// A person's own call has no grant: nothing but an agent's call is ever granted.
#[test]
fn a_persons_own_question_grants_nothing() {
    let mut journal = Journal::asked(owner());
    let yes = decide(
        &journal.record(),
        ApprovalDecision::Allow,
        &owner(),
        None,
        later(1),
    );
    assert!(journal.append(&yes.unwrap(), later(2)));
    assert_eq!(grant(&journal.record(), &digest("git push")), None);
}

#[test]
fn a_record_that_claims_a_yes_by_nobody_grants_nothing() {
    let mut record = allowed().record();
    assert!(grant(&record, &digest("git push")).is_some());
    record.decided_by = None;
    assert_eq!(grant(&record, &digest("git push")), None);
    let mut record = allowed().record();
    record.decided_at = None;
    assert_eq!(grant(&record, &digest("git push")), None);
}

#[test]
fn rows_are_about_approvals_only() {
    let recorded = |stream: &str, entry| Recorded {
        seq: 1,
        stream: stream.to_owned(),
        revision: 1,
        at: START,
        entry,
    };
    let pending = pending(agent("claude"));
    let asked = palyra_approval::ask(&pending).entry;
    assert_eq!(ApprovalsFold.name(), "approvals");
    assert_eq!(
        ApprovalsFold.key(&recorded(pending.id.as_str(), asked.clone())),
        Some(pending.id.to_string())
    );
    // In a stream that is no approval's, and entries that are not about approvals.
    assert_eq!(ApprovalsFold.key(&recorded("agents", asked.clone())), None);
    assert_eq!(
        ApprovalsFold.key(&recorded(pending.id.as_str(), Entry::Interrupted)),
        None
    );
    // An answer to a question that was never put.
    let answer = recorded(pending.id.as_str(), Entry::ApprovalExpired);
    assert_eq!(ApprovalsFold.fold(None, &answer), None);
    // A row that cannot be read.
    assert_eq!(ApprovalsFold.fold(Some(b"{"), &answer), None);
}

fn facts(arguments: &str) -> Facts {
    let metadata = ToolMetadata {
        name: "palyra.process.run".parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        capabilities: [palyra_core::ToolCapability::ProcessExec].into(),
        default_sensitive: false,
        max_input_bytes: 1_024,
        default_limits: Limits::default(),
    };
    let value = serde_json::json!({ "argv": [arguments] });
    let proposal = ToolProposal {
        tool: metadata.name.clone(),
        arguments: CanonicalJson::from_value(&value).unwrap(),
    };
    let origin = Origin {
        principal: agent("claude"),
        run: RunId::mint(START),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    Facts::new(
        CallId::mint(START),
        origin,
        &metadata,
        &proposal,
        Vec::new(),
        None,
        Tier::B,
        &ReplyPlan { reply: value },
        &DigestKey::from_bytes([1; 32]),
        START,
        1,
    )
}

#[test]
fn an_outcome_is_merged_into_the_facts_or_is_the_denial() {
    let facts = facts("true");
    let mut waiting = pending(agent("claude"));
    waiting.digest = *facts.digest();
    let mut journal = Journal::new(&waiting.id);
    assert!(journal.append(&palyra_approval::ask(&waiting), START));
    let apply = |journal: &Journal| {
        apply_tool_approval_outcome(&journal.record(), facts.clone(), later(50))
    };
    // Nobody reachable: still pending when it is looked at.
    assert_eq!(
        apply(&journal).unwrap_err().code,
        DenialCode::ApprovalExpired
    );

    let record = journal.record();
    let answer = |decision, reason| {
        let mut journal = journal.clone();
        let step = decide(&record, decision, &owner(), reason, later(10)).unwrap();
        assert!(journal.append(&step, later(10)));
        journal
    };
    let mut yes = answer(ApprovalDecision::Allow, None);
    let merged = apply(&yes).unwrap();
    assert_eq!(merged.now, later(50));
    assert_eq!(merged.grant, grant(&yes.record(), facts.digest()));
    assert_eq!(merged.digest(), facts.digest());

    // A yes to something else is not one.
    let other = self::facts("false");
    let denial = apply_tool_approval_outcome(&yes.record(), other, later(50)).unwrap_err();
    assert_eq!(denial.code, DenialCode::ApprovalDenied);

    assert!(yes.spend(&record.call, later(60)));
    assert_eq!(apply(&yes).unwrap_err().code, DenialCode::GrantSpent);

    let no = answer(ApprovalDecision::Deny, Some("no\u{1b}[2J"));
    let denial = apply(&no).unwrap_err();
    assert_eq!(denial.code, DenialCode::ApprovalDenied);
    assert_eq!(
        denial.reason,
        format!("`owner` denied approval `{}`: no\\u{{1b}}[2J", record.id)
    );

    let mut cancelled = journal.clone();
    let step = cancel(&record, "the caller hung up").unwrap();
    assert!(cancelled.append(&step, later(10)));
    let denial = apply(&cancelled).unwrap_err();
    assert_eq!(denial.code, DenialCode::ApprovalCancelled);

    let mut expired = journal.clone();
    assert!(expired.append(&expire(&record, EXPIRES).unwrap(), EXPIRES));
    assert_eq!(
        apply(&expired).unwrap_err().code,
        DenialCode::ApprovalExpired
    );
}

#[test]
fn a_prompt_shows_the_call_safely() {
    let record = Journal::asked(agent("claude")).record();
    let arguments = serde_json::json!({
        "argv": ["rm", "-rf", "\u{202e}gpj.exe", "a\"b\\c"],
        "note\n": null,
    });
    let prompt = ApprovalPromptRecord::new(&record, Some(&arguments));
    assert_eq!(prompt.requester, "agent:claude");
    assert_eq!(prompt.on_behalf_of, "owner");
    assert_eq!(prompt.hidden_bytes, 0);
    let expected = r#"{
  "argv": [
    "rm",
    "-rf",
    "\u{202e}gpj.exe",
    "a\"b\\c"
  ],
  "note\n": null
}"#;
    assert_eq!(prompt.arguments.as_deref(), Some(expected));

    let long = serde_json::json!({ "content": "x".repeat(100_000) });
    let prompt = ApprovalPromptRecord::new(&record, Some(&long));
    assert_eq!(prompt.hidden_bytes, 98_000);
    let erased = ApprovalPromptRecord::new(&record, None);
    assert_eq!(erased.arguments, None);
}
