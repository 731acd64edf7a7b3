//! `palyra presence`: whether persons prove that they are there.

use palyra_api::wire::presence::{Presence, SetPresence};

use crate::args::PresenceAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::present;
use crate::session::{Session, in_time};
use crate::table::Facts;

const PATH: &str = "/api/v1/presence";

pub(super) async fn run(action: &PresenceAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    let now: Presence = match action {
        PresenceAction::Show => super::get(session, PATH).await?,
        PresenceAction::Set => set(session).await?,
        PresenceAction::Off => {
            present::post(session, &format!("{PATH}/end"), &serde_json::json!({})).await?
        }
        PresenceAction::Forget => {
            let mut client = session.connect().await?;
            let path = format!("{PATH}/forget");
            in_time(client.post(&path, &serde_json::json!({}))).await?
        }
    };
    output.answer(&now, shown)?;
    if now.mode == "passphrase" && now.key.is_none() {
        output.suggest("set a passphrase with `palyra presence set`");
    }
    Ok(Exit::OK)
}

async fn set(session: &Session) -> Result<Presence, Failure> {
    let before: Presence = super::get(session, PATH).await?;
    let new = present::ask("new passphrase")?;
    let again = present::ask("the same again")?;
    if *new != *again {
        return Err(Failure::usage(
            "the two are not the same",
            "run `palyra presence set` again",
        ));
    }
    let wish = SetPresence {
        passphrase: new.to_string(),
    };
    match before.key {
        None => {
            let mut client = session.connect().await?;
            in_time(client.post(PATH, &wish)).await
        }
        Some(_) => present::post(session, PATH, &wish).await,
    }
}

fn shown(presence: &Presence) -> String {
    let here = match (presence.key.is_some(), presence.with_agents, presence.held) {
        (false, _, _) => None,
        (true, true, _) => Some("an agent was seen in this session: each action asks"),
        (true, false, true) => Some("given a short while ago; it counts for 15 minutes"),
        (true, false, false) => Some("the next action asks"),
    };
    Facts::default()
        .with("presence", &presence.mode)
        .maybe("decisions signed by", presence.key.as_ref())
        .maybe("here", here)
        .render()
}
