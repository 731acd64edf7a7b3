//! What a call is taken apart into, and what a yes to it may stand for.

use palyra_core::{DigestKey, Facts, ProgramGroup, Scope, ScopeKey, ScopeKind};
use palyra_effects::Identity;
use palyra_policy::{Action, PolicyEngine, Resource};

use crate::fixture::{AGENT, House};

fn kinds(facts: &Facts) -> Vec<ScopeKind> {
    facts.scopes.iter().map(|scope| scope.kind).collect()
}

/// The key of this kind of scope, for a window of time.
fn key(facts: &Facts, kind: ScopeKind) -> ScopeKey {
    let mut scopes = facts.scopes.iter();
    scopes.find(|scope| scope.kind == kind).unwrap().window
}

/// The programs that the standard baseline is asked about, by name.
fn asked_about(house: &House, facts: &Facts) -> Vec<String> {
    let engine = PolicyEngine::standard().unwrap();
    engine
        .set_tools(&house.gateway.tools(&house.owner).unwrap())
        .unwrap();
    let owner = house.owner.principal.user().clone();
    engine
        .set_agents([(AGENT.parse().unwrap(), owner)])
        .unwrap();
    let asked = engine.deliberate(facts).unwrap().asked;
    let programs = asked.iter().filter_map(|decision| {
        match (decision.action, &decision.resource) {
            // Of the agent, whether it may run now.
            (Action::Exec, Resource::Program(known)) => {
                let name = known.program.file_name().unwrap();
                Some(name.to_str().unwrap().to_owned())
            }
            _ => None,
        }
    });
    programs.collect()
}

#[tokio::test]
async fn a_shell_line_is_asked_about_piece_by_piece() {
    let house = House::open("", 1).await;
    let (asked, facts) = house.run(&["sh", "-c", "git status | head"]).await;
    assert!(asked);
    assert!(!facts.opaque, "{:?}", facts.risk);
    assert_eq!(asked_about(&house, &facts), ["sh", "git", "head"]);
    let groups: Vec<&[ProgramGroup]> = facts
        .programs
        .iter()
        .map(|program| program.groups.as_slice())
        .collect();
    assert_eq!(
        groups,
        [
            &[ProgramGroup::Interpreters] as &[_],
            &[ProgramGroup::Vcs, ProgramGroup::Network],
            &[]
        ]
    );
    assert_eq!(kinds(&facts), [ScopeKind::Exact]);
}

#[tokio::test]
async fn what_can_do_anything_stands_only_for_itself() {
    let house = House::open("", 1).await;
    let opaque = ["sh", "-c", "$SOMETHING"];
    let (asked, facts) = house.run(&opaque).await;
    assert!(asked && facts.opaque);
    assert_eq!(kinds(&facts), [ScopeKind::Exact]);
    for argv in [&["sh", "x.sh"] as &[_], &["env", "ls"], &["sh", "-c", "ls"]] {
        let (asked, facts) = house.run(argv).await;
        assert!(asked && !facts.opaque, "{argv:?}: {:?}", facts.risk);
        assert_eq!(kinds(&facts), [ScopeKind::Exact], "{argv:?}");
    }
}

#[tokio::test]
async fn an_ordinary_call_has_every_scope_under_the_local_key() {
    use ScopeKind::{Directory, Exact, Program, Shape, Tool};
    let house = House::open("", 1).await;
    let (asked, one) = house.run(&["ls", "-l", "one"]).await;
    assert!(asked && !one.opaque);
    assert_eq!(kinds(&one), [Exact, Shape, Directory, Program, Tool]);

    // Another file is another call of the same shape; another option is another shape.
    let (_, other) = house.run(&["ls", "-l", "other"]).await;
    let (_, all) = house.run(&["ls", "-a", "one"]).await;
    assert_ne!(key(&one, Exact), key(&other, Exact));
    assert_eq!(key(&one, Shape), key(&other, Shape));
    assert_ne!(key(&one, Shape), key(&all, Shape));
    assert_eq!(key(&one, Program), key(&all, Program));
    let (_, cat) = house.run(&["cat", "one"]).await;
    assert_ne!(key(&one, Program), key(&cat, Program));
    assert_eq!(key(&one, Tool), key(&cat, Tool));

    // These two have no facts but the call's own, so they can be had again: with the key only.
    for kind in [Exact, Tool] {
        let again = |local: u8| {
            let scopes = scopes_of_nothing_but(&one, local);
            scopes.into_iter().find(|scope| scope.kind == kind).unwrap()
        };
        assert_eq!(again(1).window, key(&one, kind));
        assert_ne!(again(2).window, key(&one, kind));
        assert_ne!(again(1).session, again(1).window);
    }
}

fn scopes_of_nothing_but(facts: &Facts, local: u8) -> Vec<Scope> {
    let identity = Identity {
        origin: &facts.origin,
        tool: &facts.tool,
        workspace: facts.workspace.as_deref(),
        tier: facts.tier,
        exact: facts.digest(),
    };
    let key = DigestKey::from_bytes([local; 32]);
    palyra_effects::of_nothing()
        .understanding(&identity, &key)
        .scopes
}
