//! What one yes may stand for.

use palyra_core::ScopeKind::{Exact, Tool};
use palyra_core::facts::Origin;
use palyra_core::{
    Channel, DeviceId, DigestKey, Principal, RunId, ScopeKind, Tier, Timestamp, Understanding,
    UserName,
};
use palyra_effects::{
    Analysis, FileAccess, Identity, Opaque, ProcessCall, Read, of_file, of_process,
};

use crate::machine::{Machine, WORKSPACE, analyse, call};

struct Who {
    agent: &'static str,
    run: RunId,
    tier: Tier,
}

fn understood(analysis: &Analysis, who: &Who) -> Understanding {
    let key = DigestKey::from_bytes([7; 32]);
    let origin = Origin {
        principal: Principal::Agent {
            name: who.agent.parse().unwrap(),
            user: UserName::owner(),
        },
        run: who.run.clone(),
        device: DeviceId::local(),
        channel: Channel::Cli,
        session: None,
    };
    let identity = Identity {
        origin: &origin,
        tool: &"palyra.process.run".parse().unwrap(),
        workspace: Some(WORKSPACE.as_ref()),
        tier: who.tier,
        exact: &key.call_digest(&[b"this call"]),
    };
    analysis.understanding(&identity, &key)
}

fn who() -> Who {
    Who {
        agent: "coder",
        run: RunId::mint(Timestamp::from_millis(1)),
        tier: Tier::B,
    }
}

fn kinds(argv: &[&str]) -> Vec<ScopeKind> {
    let found = understood(&analyse(argv), &who());
    found.scopes.iter().map(|scope| scope.kind).collect()
}

/// Case 17 of the research page.
#[test]
fn what_runs_other_things_has_only_the_exact_scope() {
    for argv in [
        vec!["sh", "-c", "ls"],
        vec!["bash", "x.sh"],
        vec!["python3", "x.py"],
        vec!["env", "ls"],
        vec!["sudo", "ls"],
        vec!["xargs", "ls"],
        vec!["find", ".", "-exec", "ls", ";"],
        vec!["ssh", "h.example"],
        vec!["docker", "run", "x"],
        vec!["fancywrap", "ls"],
        vec!["./tool"],
        vec!["git", "push"],
        vec!["git", "-c", "a=b", "log"],
    ] {
        assert_eq!(kinds(&argv), [ScopeKind::Exact], "{argv:?}");
    }
}

#[test]
fn an_ordinary_call_has_them_all() {
    use ScopeKind::{Directory, Exact, Host, Program, Shape, Tool};
    assert_eq!(
        kinds(&["git", "status"]),
        [Exact, Shape, Directory, Program, Tool]
    );
    let curl = ["curl", "https://a.example"];
    assert_eq!(kinds(&curl), [Exact, Shape, Host, Directory, Program, Tool]);
    assert_eq!(kinds(&["rm", "-rf", "x"]), [Exact, Shape]);
    assert_eq!(kinds(&["cat", "/etc/passwd"]), [Exact, Shape]);
    assert_eq!(kinds(&["cat", "out/x"]), [Exact, Shape]);
}

/// A yes to the tool says nothing of hosts; one to a call without a secret is none to one with it,
/// whatever its variables are set to.
#[test]
fn hosts_and_secrets_are_in_every_scope() {
    let argv: Vec<String> = ["curl", "https://a.example"].map(str::to_owned).to_vec();
    let rules = palyra_core::EgressRule::named("a.example:443").unwrap();
    let with = |call: &ProcessCall<'_>| understood(&of_process(call, &Machine), &who()).scopes;
    let plain = ProcessCall {
        hosts: &rules,
        ..call(&argv)
    };
    assert!(with(&plain).iter().all(|scope| scope.kind != Tool));
    let secret = [("github".to_owned(), "TOKEN".to_owned())];
    let used = ProcessCall {
        secrets: &secret,
        environment: &[("TOKEN", "")],
        ..plain
    };
    for value in ["", "secret github", "secret github at TOKEN"] {
        let pretended = ProcessCall {
            environment: &[("TOKEN", value)],
            ..plain
        };
        let pretended = with(&pretended);
        for scope in with(&used).iter().filter(|scope| scope.kind != Exact) {
            assert!(!pretended.contains(scope), "{value}: {scope:?}");
        }
    }
}

#[test]
fn a_shape_stars_only_what_stays_inside() {
    for (argv, shape) in [
        (vec!["git", "commit", "-m", "hello"], "git commit -m *"),
        (vec!["ls", "-l", "a", "b"], "ls -l * *"),
        (vec!["cat", "/etc/passwd"], "cat /etc/passwd"),
        (vec!["cat", "out/secret"], "cat out/secret"),
        (vec!["cat", "--", "-x"], "cat -- *"),
        (vec!["make", "test", "MODE=x"], "make test MODE=x"),
        (vec!["npm", "run", "x", "y"], "npm run x y"),
        (
            vec!["git", "-C", "sub", "checkout", "x"],
            "git -C sub checkout x",
        ),
    ] {
        let found = understood(&analyse(&argv), &who());
        let sentence = &found.scopes[1].sentence;
        assert!(sentence.contains(&format!("`{shape}`")), "{sentence}");
    }
}

/// What a program reads and which variables it gets is not in its words.
#[test]
fn another_input_variable_or_path_is_another_call() {
    let argv = ["sort", "a"].map(str::to_owned);
    let keys = |change: &dyn Fn(&mut ProcessCall<'_>)| {
        let mut call = call(&argv);
        change(&mut call);
        let scopes = understood(&of_process(&call, &Machine), &who()).scopes;
        let wider = scopes
            .iter()
            .filter(|scope| !matches!(scope.kind, Exact | Tool));
        wider.map(|scope| scope.window).collect::<Vec<_>>()
    };
    let plain = keys(&|_| {});
    assert_eq!(plain.len(), 3);
    for other in [
        keys(&|call| call.stdin = Read::Text("x")),
        keys(&|call| call.environment = &[("FOO", "x")]),
        keys(&|call| call.environment = &[("FOO", "y")]),
        keys(&|call| call.path = "/opt/x:/usr/bin"),
    ] {
        assert_eq!(other.len(), 3);
        assert!(plain.iter().all(|key| !other.contains(key)));
    }
}

/// Programs look for others by `PATH`, and the agent can put some into its workspace.
#[test]
fn a_path_into_the_workspace_is_not_understood() {
    let argv = ["tar", "xzf", "a.tgz"].map(str::to_owned);
    for path in ["/workspace/bin:/usr/bin", ".:/usr/bin", "/usr/bin:", ""] {
        let mut call = call(&argv);
        call.path = path;
        let found = of_process(&call, &Machine);
        assert!(found.opaque.contains(&Opaque::Environment), "{path}");
    }
}

#[test]
fn a_key_serves_nobody_else() {
    let call = analyse(&["git", "commit", "-m", "a"]);
    let mine = understood(&call, &who()).scopes;
    let other_agent = understood(
        &call,
        &Who {
            agent: "other",
            ..who()
        },
    )
    .scopes;
    let other_tier = understood(
        &call,
        &Who {
            tier: Tier::Builtin,
            ..who()
        },
    )
    .scopes;
    let later = RunId::mint(Timestamp::from_millis(2));
    let other_run = understood(
        &call,
        &Who {
            run: later,
            ..who()
        },
    )
    .scopes;
    for (at, scope) in mine.iter().enumerate() {
        for other in [&other_agent, &other_tier] {
            assert_ne!(scope.session, other[at].session);
            assert_ne!(scope.window, other[at].window);
        }
        assert_ne!(scope.session, other_run[at].session);
        assert_ne!(scope.session, scope.window);
    }
    // The keys of one call differ among each other, and are the same for the same thing.
    let same = Who {
        run: who().run,
        ..who()
    };
    let again = understood(&analyse(&["git", "commit", "-m", "b"]), &same).scopes;
    assert_eq!(mine[1].window, again[1].window);
    assert_ne!(mine[1].window, mine[2].window);
}

#[test]
fn a_files_scope_is_its_real_folder() {
    let place = |path: &str| {
        of_file(
            FileAccess::Write,
            path.as_ref(),
            WORKSPACE.as_ref(),
            &Machine,
        )
    };
    let inside = understood(&place("/workspace/a/b"), &who());
    assert!(inside.scopes[1].sentence.contains("`/workspace/a`"));
    assert_eq!(inside.risk.level.as_str(), "medium");
    let outside = understood(&place("/workspace/out/b"), &who());
    assert!(outside.scopes[1].sentence.contains("`/outside`"));
    assert_eq!(outside.risk.level.as_str(), "critical");
}
