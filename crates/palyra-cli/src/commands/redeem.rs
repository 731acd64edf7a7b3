//! `palyra exec --call TOKEN`: what a hook had decided about, run here instead of by the client.

use crate::calling::{By, Calling, Input};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn run(token: &str, session: &Session) -> Result<Exit, Failure> {
    // The daemon that gave the token is there, or the token is gone with it.
    let mut client = session.connect().await?;
    let body = serde_json::json!({ "redeem": token }).to_string();
    let calling = Calling {
        body: body.into(),
        what: "what the hook decided about".to_owned(),
        by: By::Exec,
        input: Input::None,
    };
    calling.run(&mut client, session).await
}
