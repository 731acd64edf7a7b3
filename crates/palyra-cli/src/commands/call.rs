//! `palyra call`: any tool, with JSON arguments.
//!
//! The arguments go to the daemon as they were written, because its strict door judges them. They
//! pass the same door here first: what is not one strict JSON value could otherwise reach into the
//! request around it, and the answer comes sooner.

use palyra_core::json::NotCanonical;
use palyra_core::{CanonicalJson, render};

use crate::args::Call;
use crate::calling::{By, Calling, Input};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::place;
use crate::present;
use crate::session::Session;
use crate::stdin;
use crate::values::JsonArg;

pub(super) async fn run(args: &Call, session: &Session) -> Result<Exit, Failure> {
    let tool = args.tool.as_str();
    let text = read(&args.arguments)?;
    check(&text, tool)?;
    let workspace = match (&args.workspace, &session.agent) {
        (Some(given), _) => Some(place::workspace(given)?),
        // Not every tool needs a folder, so a folder that is gone is no reason to stop.
        (None, None) => place::here().ok(),
        (None, Some(_)) => None,
    };
    let client = session.connect_or_start().await?;
    let mut client = present::proving(session, client).await;
    let who = session
        .agent
        .as_ref()
        .map_or_else(|| "you".to_owned(), ToString::to_string);
    let calling = Calling {
        body: body(tool, &text, workspace.as_deref(), Beside::of(args)).into(),
        what: format!("{who}: {tool} {}", shortened(&text)),
        by: By::Call,
        input: Input::None,
    };
    calling.run(&mut client, session).await
}

/// The strict door, with the codes of the daemon's own.
fn check(text: &[u8], tool: &str) -> Result<(), Failure> {
    CanonicalJson::parse(text).map(drop).map_err(|error| {
        let code = match &error {
            NotCanonical::Malformed(_) => "invalid_json",
            NotCanonical::InexactNumber(_) => "inexact_number",
        };
        let hint = format!("see what it takes with `palyra tools show {tool}`");
        Failure::new(Meaning::Usage, code, error.to_string(), hint)
    })
}

/// What a request says beside the call itself.
#[derive(Clone, Copy, Default)]
struct Beside<'a> {
    why: Option<&'a str>,
    detach: bool,
}

impl<'a> Beside<'a> {
    fn of(args: &'a Call) -> Self {
        Self {
            why: args.why.as_deref(),
            detach: args.detach,
        }
    }
}

/// The request around arguments that are known to be one JSON value.
fn body(tool: &str, arguments: &[u8], workspace: Option<&str>, beside: Beside<'_>) -> Vec<u8> {
    let mut body = format!("{{\"tool\":{},\"arguments\":", serde_json::json!(tool)).into_bytes();
    body.extend_from_slice(arguments);
    if let Some(workspace) = workspace {
        body.extend_from_slice(b",\"workspace\":");
        body.extend_from_slice(serde_json::json!(workspace).to_string().as_bytes());
    }
    if let Some(why) = beside.why {
        body.extend_from_slice(b",\"said\":");
        body.extend_from_slice(serde_json::json!(why).to_string().as_bytes());
    }
    if beside.detach {
        body.extend_from_slice(b",\"detach\":true");
    }
    body.push(b'}');
    body
}

fn read(arguments: &JsonArg) -> Result<Vec<u8>, Failure> {
    match arguments {
        JsonArg::Text(text) => Ok(text.clone().into_bytes()),
        JsonArg::Stdin => stdin::read(),
        JsonArg::File(path) => {
            stdin::limited(&format!("`{}`", path.display()), std::fs::File::open(path))
        }
    }
}

/// The arguments as far as they fit on a line.
fn shortened(text: &[u8]) -> String {
    render::shown(&String::from_utf8_lossy(text), 160).text
}

#[cfg(test)]
mod tests {
    use palyra_api::wire::CallRequest;

    use super::*;

    #[test]
    fn the_request_wraps_the_text_as_written() {
        let body = body(
            "palyra.echo",
            br#"{ "message" : "a\"b" }"#,
            Some("/w \"x\""),
            Beside::default(),
        );
        assert!(body.starts_with(br#"{"tool":"palyra.echo","arguments":{ "message" "#));
        let request: CallRequest = serde_json::from_slice(&body).unwrap();
        assert_eq!(request.workspace.as_deref(), Some("/w \"x\""));
        assert_eq!(request.arguments, serde_json::json!({"message": "a\"b"}));
    }

    #[test]
    fn arguments_are_read_from_files_or_explained() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("a.json");
        std::fs::write(&file, "{}").unwrap();
        assert_eq!(read(&JsonArg::File(file)).unwrap(), b"{}");
        for wrong in [scratch.path().join("none"), scratch.path().to_owned()] {
            assert_eq!(
                read(&JsonArg::File(wrong)).unwrap_err().meaning,
                Meaning::Usage
            );
        }
    }

    #[test]
    fn ambiguous_arguments_are_refused_before_they_are_sent() {
        let code = |text: &str| check(text.as_bytes(), "palyra.echo").unwrap_err().code;
        for malformed in [
            "",
            "{",
            r#"{"a":1,"a":2}"#,
            "{},\"workspace\":\"/\"",
            "[1] [2]",
            "nope",
        ] {
            assert_eq!(code(malformed), "invalid_json", "{malformed}");
        }
        assert_eq!(code("[9007199254740993]"), "inexact_number");
        assert!(check(b"{\"message\":\"hi\"}", "palyra.echo").is_ok());
    }

    #[test]
    fn a_long_question_is_shortened() {
        assert_eq!(shortened(b"{}\n"), "{}\\n");
        assert_eq!(shortened(&[b' '; 200]), "\\{200 spaces}");
        let long = shortened(&[b'a'; 200]);
        assert!(long.contains(r"a\{40 bytes not shown, sha256:"), "{long}");
    }
}
