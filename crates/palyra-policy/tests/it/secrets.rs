//! Secrets in their scopes: who uses, who sees.

use palyra_core::{Channel, DeviceId, SecretRef};
use palyra_policy::{
    Action, Baseline, PolicyEngine, PolicyRequest, PolicyRequestContext, Resource,
};

use crate::fixture::{ECHO, call, engine_of, granted, who};

fn secret(text: &str) -> Resource {
    Resource::Secret(text.parse::<SecretRef>().unwrap())
}

/// Whether `claude` may use it for a call that a person approved.
fn uses(engine: &PolicyEngine, name: &str) -> bool {
    let facts = granted(call(&who("claude"), ECHO, "x"), |_| {});
    let request = PolicyRequest {
        principal: who("claude"),
        action: Action::VaultUse,
        resource: secret(name),
    };
    let context = PolicyRequestContext::from(&facts);
    engine
        .evaluate_with_context(&request, &context)
        .unwrap()
        .allowed
}

fn may(engine: &PolicyEngine, person: &str, action: Action, on: Resource) -> bool {
    let device = DeviceId::local();
    engine
        .authorize(&who(person), &device, Channel::Cli, action, on)
        .is_ok()
}

#[test]
fn an_agent_uses_what_is_for_it_and_sees_nothing() {
    for baseline in Baseline::ALL {
        let engine = engine_of(baseline.source());
        for own in [
            "token",
            "agent:claude/token",
            "principal:owner/token",
            "channel:cli/token",
            &format!("tool:{ECHO}/token"),
        ] {
            assert!(uses(&engine, own), "{baseline}: {own}");
        }
        for foreign in [
            "agent:codex/token",
            "agent:claude2/token",
            "principal:guest/token",
            "channel:web/token",
            "tool:other.tool/token",
            "session:s/token",
            "skill:x/token",
        ] {
            assert!(!uses(&engine, foreign), "{baseline}: {foreign}");
        }
        for action in [
            Action::VaultGet,
            Action::VaultPut,
            Action::VaultList,
            Action::VaultDelete,
        ] {
            assert!(
                !may(&engine, "claude", action, secret("agent:claude/token")),
                "{action}"
            );
            assert!(
                may(&engine, "owner", action, secret("agent:claude/token")),
                "{action}"
            );
            assert!(!may(&engine, "guest", action, secret("token")), "{action}");
        }
        for action in [
            Action::VaultManage,
            Action::VaultExport,
            Action::QuarantineManage,
        ] {
            assert!(
                !may(&engine, "claude", action, Resource::Daemon),
                "{action}"
            );
            assert!(may(&engine, "owner", action, Resource::Daemon), "{action}");
        }
    }
}

#[test]
fn an_operator_lets_an_agent_list_one_scope() {
    let own = r#"
        @id("own_names") permit (
          principal == Palyra::Agent::"claude", action == Palyra::Action::"vault.list",
          resource in Palyra::VaultScope::"agent:claude");"#;
    let source = format!("{}{own}", palyra_policy::DEFAULT_POLICY_SRC);
    let engine = engine_of(&source);
    let lists = |name: &str| may(&engine, "claude", Action::VaultList, secret(name));
    assert!(lists("agent:claude/token"));
    assert!(!lists("agent:claude2/token") && !lists("token"));
}
