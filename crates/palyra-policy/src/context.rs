//! Facts as a Cedar context, built natively.

use cedar_policy::{Context, EntityUid, RestrictedExpression, Schema};
use palyra_core::{
    Channel, Denial, DeviceId, Effect, Facts, Grant, RiskLevel, Timestamp, ToolName,
};
use std::path::Path;

use crate::error::{broken, unavailable};
use crate::request::Action;
use crate::vocabulary::Vocabulary;

type Pair = (String, RestrictedExpression);

/// A context that fits the schema. Those of calls have one type, and those of everything else
/// another; so one that was checked for an action is fit for every action of the same kind.
#[derive(Debug, Clone)]
pub(crate) struct Checked(Context);

impl Checked {
    pub(crate) fn into_inner(self) -> Context {
        self.0
    }
}

/// The context of everything that is not a call.
pub(crate) fn of_api(
    words: &Vocabulary,
    schema: &Schema,
    action: Action,
    device: &DeviceId,
    channel: Channel,
) -> Result<Checked, Denial> {
    finish(origin(words, device, channel), words, schema, action)
}

/// The context of a call, for an action of calls.
pub(crate) fn of_call(
    words: &Vocabulary,
    schema: &Schema,
    action: Action,
    facts: &Facts,
) -> Result<Checked, Denial> {
    let capabilities = facts.capabilities.iter().map(|need| text(need.as_str()));
    let mut pairs = origin(words, &facts.origin.device, facts.origin.channel);
    pairs.extend([
        pair("run", text(facts.origin.run.as_str())),
        pair("tool", entity(words.tool(&facts.tool))),
        pair("now", instant(facts.now)),
        pair("digest", text(facts.digest().to_text())),
        pair("opaque", truth(facts.opaque)),
        pair("inside", truth(is_inside(facts))),
        pair("risk", long(facts.risk.level.rank())),
        pair("scopes", scopes(facts)),
        pair("capabilities", RestrictedExpression::new_set(capabilities)),
        pair("tier", long(facts.tier.rank())),
        pair(
            "calls_last_minute",
            long(saturated(facts.calls_last_minute)),
        ),
    ]);
    pairs.extend(effects(&facts.effects)?);
    if let Some(workspace) = &facts.workspace {
        pairs.push(pair("workspace", text(path(workspace)?)));
    }
    if let Some(session) = &facts.origin.session {
        pairs.push(pair("session", text(session.as_str())));
    }
    if let Some(posture) = facts.posture {
        pairs.push(pair("posture", text(posture.as_str())));
    }
    if let Some(confirmed) = facts.self_confirmed {
        pairs.push(pair("self_confirmed", truth(confirmed)));
    }
    if let Some(grant) = &facts.grant {
        pairs.push(pair("grant", granted(words, grant)?));
    }
    finish(pairs, words, schema, action)
}

/// The most ordinary call there is: from here and now, unknown effects, nothing granted.
pub(crate) fn of_listing(
    words: &Vocabulary,
    schema: &Schema,
    tool: &ToolName,
    device: &DeviceId,
    channel: Channel,
) -> Result<Checked, Denial> {
    let mut pairs = origin(words, device, channel);
    pairs.extend([
        pair("run", text("")),
        pair("tool", entity(words.tool(tool))),
        pair("now", instant(Timestamp::from_millis(0))),
        pair("digest", text("")),
        pair("capabilities", RestrictedExpression::new_set([])),
        pair("tier", long(palyra_core::Tier::B.rank())),
        pair("calls_last_minute", long(0)),
        pair("opaque", truth(false)),
        pair("inside", truth(true)),
        pair("risk", long(RiskLevel::Low.rank())),
        pair("scopes", RestrictedExpression::new_set([])),
    ]);
    pairs.extend(effects(&[])?);
    finish(pairs, words, schema, Action::ToolExecute)
}

fn origin(words: &Vocabulary, device: &DeviceId, channel: Channel) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(24);
    pairs.push(pair("device", entity(words.device(device))));
    pairs.push(pair("channel", entity(words.channel(channel))));
    pairs
}

/// Whether every file it touches is in its workspace, folder by folder. What is opaque may touch
/// others.
fn is_inside(facts: &Facts) -> bool {
    !facts.opaque
        && facts.effects.iter().all(|effect| match effect {
            Effect::Exec { .. } | Effect::NetConnect { .. } => true,
            Effect::FsRead { path } | Effect::FsWrite { path } => facts
                .workspace
                .as_ref()
                .is_some_and(|workspace| path.starts_with(workspace)),
        })
}

/// Every key that a grant for this call, or for calls like it, can name.
fn scopes(facts: &Facts) -> RestrictedExpression {
    let keys = facts.scopes.iter();
    let keys = keys.flat_map(|scope| [&scope.session, &scope.window]);
    RestrictedExpression::new_set(keys.map(|key| text(key.to_text())))
}

fn effects(effects: &[Effect]) -> Result<[Pair; 4], Denial> {
    let (mut programs, mut hosts) = (Vec::new(), Vec::new());
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for effect in effects {
        match effect {
            Effect::Exec { program } => programs.push(text(path(program)?)),
            Effect::FsRead { path: file } => reads.push(text(path(file)?)),
            Effect::FsWrite { path: file } => writes.push(text(path(file)?)),
            Effect::NetConnect { host, .. } => hosts.push(text(host.as_str())),
        }
    }
    Ok([
        pair("programs", RestrictedExpression::new_set(programs)),
        pair("reads", RestrictedExpression::new_set(reads)),
        pair("writes", RestrictedExpression::new_set(writes)),
        pair("hosts", RestrictedExpression::new_set(hosts)),
    ])
}

fn granted(words: &Vocabulary, grant: &Grant) -> Result<RestrictedExpression, Denial> {
    let agent = entity(words.agent(&grant.agent));
    let mut pairs = vec![
        pair("agent", agent),
        pair("digest", text(grant.digest.to_text())),
        pair("not_after", instant(grant.not_after)),
        pair("people", long(grant.people)),
    ];
    pairs.extend(
        grant
            .standing
            .as_ref()
            .map(|_| pair("standing", truth(true))),
    );
    pairs.extend(grant.scope.map(|key| pair("scope", text(key.to_text()))));
    RestrictedExpression::new_record(pairs).map_err(broken)
}

fn finish(
    pairs: Vec<Pair>,
    words: &Vocabulary,
    schema: &Schema,
    action: Action,
) -> Result<Checked, Denial> {
    let context = Context::from_pairs(pairs).map_err(broken)?;
    let checked = context.validate(schema, &words.action(action));
    checked.map_err(broken)?;
    Ok(Checked(context))
}

fn pair(name: &str, value: RestrictedExpression) -> Pair {
    (name.to_owned(), value)
}

fn entity(uid: EntityUid) -> RestrictedExpression {
    RestrictedExpression::new_entity_uid(uid)
}

fn truth(value: bool) -> RestrictedExpression {
    RestrictedExpression::new_bool(value)
}

fn text(value: impl Into<String>) -> RestrictedExpression {
    RestrictedExpression::new_string(value.into())
}

fn long(value: i64) -> RestrictedExpression {
    RestrictedExpression::new_long(value)
}

/// A time that Cedar cannot hold fails when the context is made, which denies.
fn instant(at: Timestamp) -> RestrictedExpression {
    RestrictedExpression::new_datetime(at.to_string())
}

/// Policy compares whole paths. One that is not text would have to be changed to be compared.
fn path(path: &Path) -> Result<&str, Denial> {
    path.to_str().ok_or_else(|| {
        unavailable(
            format_args!("the path `{}` is not UTF-8", path.display()),
            "rename it, then repeat the call",
        )
    })
}

fn saturated(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::operator::context_of;
    use crate::request::{Action, Kind};

    /// What [`Checked`](super::Checked) relies on.
    #[test]
    fn every_action_of_a_kind_has_the_same_context() {
        let is_call = |action: &Action| match action.kind() {
            Kind::Run | Kind::Ask => true,
            Kind::Api => false,
        };
        for action in Action::ALL {
            let first = Action::ALL.iter().find(|it| is_call(it) == is_call(action));
            let [one, other] = [first.unwrap(), action].map(|it| context_of(it.as_str()).unwrap());
            assert!(!one.is_empty());
            assert_eq!(one, other, "{action}");
        }
    }
}
