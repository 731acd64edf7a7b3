//! Over random calls: an agent's call that is sensitive or opaque never runs without a live yes of
//! its own.

use palyra_core::corridor::{Decides as _, PolicyAnswer};
use palyra_core::{Effect, Grant, Tier, Timestamp};
use proptest::prelude::*;

use crate::fixture::{ECHO, NOW, READ, RUN, SHY, WRITE, call, does, engine, grant_for, who};

/// A grant as an attacker or an accident might present it, mostly close to the truth.
#[derive(Debug, Clone)]
struct Presented {
    agent: &'static str,
    arguments: &'static str,
    tool: &'static str,
    ends_in: i64,
    people: i64,
}

fn presented() -> impl Strategy<Value = Presented> {
    (
        prop::sample::select(vec!["claude", "claude", "codex", "stray", "owner"]),
        prop::sample::select(vec!["x", "x", "y"]),
        prop::sample::select(vec![RUN, WRITE, SHY, ECHO]),
        prop_oneof![Just(0), Just(1), Just(-1), -100_000..100_000_i64],
        prop_oneof![Just(1), Just(0), -2..4_i64],
    )
        .prop_map(|(agent, arguments, tool, ends_in, people)| Presented {
            agent,
            arguments,
            tool,
            ends_in,
            people,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sensitive_call_of_an_agent_runs_only_with_a_live_grant(
        person in prop::sample::select(vec!["owner", "claude", "claude", "codex", "stray", "guest"]),
        tool in prop::sample::select(vec![RUN, WRITE, SHY, ECHO, READ]),
        arguments in prop::sample::select(vec!["x", "y"]),
        presented in prop::option::of(presented()),
        tier in prop::sample::select(vec![Tier::B, Tier::Builtin]),
        calls_last_minute in prop_oneof![0..2_000_u64, Just(u64::MAX)],
        program in prop::option::of("[ -\\-0-~\u{80}-\u{2fff}]{0,20}"),
        opaque in any::<bool>(),
        at in prop_oneof![Just(0), -1_000_000..1_000_000_i64],
    ) {
        thread_local! {
            static ENGINE: palyra_policy::PolicyEngine = engine();
        }
        let principal = who(person);
        let effects = program
            .map(|program| Effect::Exec { program: format!("/{program}").into() })
            .into_iter()
            .collect();
        let mut facts = does(call(&principal, tool, arguments), effects);
        facts.opaque = opaque;
        facts.tier = tier;
        facts.calls_last_minute = calls_last_minute;
        facts.now = Timestamp::from_millis(NOW.as_millis() + at);
        let grant = presented.map(|presented| {
            // Equal to the call's own digest only for the same principal, tool and arguments.
            let mut grant = grant_for(call(&principal, presented.tool, presented.arguments).digest());
            grant.agent = presented.agent.parse().unwrap();
            grant.not_after = Timestamp::from_millis(NOW.as_millis() + presented.ends_in);
            grant.people = presented.people;
            grant
        });
        facts.grant.clone_from(&grant);
        let live = |grant: &Grant| {
            principal.agent() == Some(&grant.agent)
                && grant.digest == *facts.digest()
                && facts.now < grant.not_after
                && grant.people >= 1
        };
        let covered = grant.as_ref().is_some_and(live);
        let answer = ENGINE.with(|engine| engine.answer(&facts)).unwrap();
        let runs = matches!(answer, PolicyAnswer::Run { .. });
        let sensitive_agent = principal.agent().is_some() && (facts.sensitive || opaque);
        if sensitive_agent && !covered {
            prop_assert!(!runs, "{facts:?}");
        }
        // And exactly this much runs: the owner's calls, and what an agent of the owner's may.
        let owners = principal.user().as_str() == "owner";
        prop_assert_eq!(runs, owners && (!sensitive_agent || covered), "{:?}", facts);
        // Nobody is asked twice, and nobody is asked on a guest's behalf.
        let asks = matches!(answer, PolicyAnswer::Ask { .. });
        prop_assert_eq!(asks, owners && sensitive_agent && grant.is_none());
    }
}
