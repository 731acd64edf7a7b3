//! How a call came out, as a model can read it and act on it.
//!
//! The daemon's next steps are for the person at this machine, and name the commands that decide. A
//! model hears what it can do itself: repeat the call, mend its arguments, or tell its person. It is
//! never told how a question is answered or a rule is changed.

use palyra_api::wire::{CallResult, Outcome, Problem};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde_json::Value;

/// How much of an output is in a result; all of it is behind the link.
pub const MOST_SHOWN: usize = 32 << 10;
/// How much of that is its end, where programs say what went wrong.
const TAIL: usize = 8 << 10;

/// The address of a call's whole output.
#[must_use]
pub fn output_uri(call: &str) -> String {
    format!("palyra://calls/{call}/output")
}

/// The call that such an address names.
#[must_use]
pub fn call_of_uri(uri: &str) -> Option<&str> {
    let call = uri
        .strip_prefix("palyra://calls/")?
        .strip_suffix("/output")?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!call.is_empty() && call.bytes().all(legal)).then_some(call)
}

/// The end of a call.
#[must_use]
pub fn finished(result: &CallResult) -> CallToolResult {
    let mut said = Said::of(result);
    let text = match (&result.problem, &result.output) {
        (Some(problem), output) => {
            let mut text = said.problem(problem, result.outcome);
            if let Some(output) = output {
                text = format!("{}\n{text}", readable(output));
            }
            text
        }
        (None, Some(output)) => readable(output),
        (None, None) => result_word(result.outcome).to_owned(),
    };
    let text = match (result.exit_code, result.signal) {
        (Some(code), _) if code != 0 => format!("{text}\n[exit code {code}]"),
        (_, Some(signal)) => format!("{text}\n[ended by signal {signal}]"),
        _ => text,
    };
    let failed = result.outcome != Outcome::Completed
        || result.exit_code.is_some_and(|code| code != 0)
        || result.signal.is_some();
    let mut content = Vec::new();
    let whole = text.len();
    if whole > MOST_SHOWN {
        let uri = output_uri(&result.call_id);
        said.put("output_resource", uri.clone());
        content.push(ContentBlock::text(shortened(&text)));
        let link = Resource::new(uri, "the whole output")
            .with_description("all that is kept of what the call gave back")
            .with_mime_type("text/plain")
            .with_size(whole as u64);
        content.push(ContentBlock::resource_link(link));
    } else {
        if let Some(output) = &result.output {
            said.0.insert("output".to_owned(), output.clone());
        }
        content.push(ContentBlock::text(text));
    }
    said.result(content, failed)
}

/// The call waits for a person, and its caller does not wait longer.
#[must_use]
pub fn pending(call: &str, approval: &str) -> CallToolResult {
    let problem = Problem {
        code: "approval_pending".to_owned(),
        message: format!("approval `{approval}` waits for a person"),
        next_step: String::new(),
    };
    let mut said = Said::default();
    said.put("call_id", call);
    said.put("approval_id", approval);
    let text = said.problem(&problem, Outcome::Denied);
    said.result(vec![ContentBlock::text(text)], true)
}

/// It could not even be proposed.
#[must_use]
pub fn refused(problem: &Problem) -> CallToolResult {
    let mut said = Said::default();
    let text = said.problem(problem, Outcome::Denied);
    said.result(vec![ContentBlock::text(text)], true)
}

/// What a result says to programs.
#[derive(Default)]
struct Said(JsonObject);

impl Said {
    fn of(result: &CallResult) -> Self {
        let mut said = Self::default();
        let decision = match result.outcome {
            Outcome::Denied | Outcome::ApprovalDenied | Outcome::ApprovalExpired => "denied",
            // Cancelled before it ran, it has no attestation.
            Outcome::Cancelled | Outcome::Failed | Outcome::SandboxUnavailable
                if result.attestation.is_none() =>
            {
                "denied"
            }
            Outcome::Completed
            | Outcome::TimedOut
            | Outcome::Cancelled
            | Outcome::Failed
            | Outcome::SandboxUnavailable
            | Outcome::Interrupted => "permitted",
        };
        said.put("decision", decision);
        said.put("outcome", result_word(result.outcome));
        said.put("call_id", result.call_id.as_str());
        if let Some(approval) = &result.approval_id {
            said.put("approval_id", approval.as_str());
        }
        for (name, number) in [("exit_code", result.exit_code), ("signal", result.signal)] {
            if let Some(number) = number {
                said.0.insert(name.to_owned(), number.into());
            }
        }
        let record = result.attestation.as_ref();
        if let Some(id) = record.and_then(|record| record.get("attestation_id")?.as_str()) {
            said.put("attestation_id", id);
        }
        said
    }

    fn put(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), Value::String(value.into()));
    }

    /// Says what is wrong; gives the same in words.
    fn problem(&mut self, problem: &Problem, outcome: Outcome) -> String {
        let next_step = next_step(&problem.code, outcome);
        if problem.code == "approval_pending" {
            self.put("decision", "pending");
            self.put("outcome", "approval_pending");
        } else if !self.0.contains_key("decision") {
            self.put("decision", "denied");
            self.put("outcome", result_word(outcome));
        }
        self.put("code", problem.code.as_str());
        self.put("reason", problem.message.as_str());
        self.put("next_step", next_step);
        let word = match problem.code.as_str() {
            "approval_pending" => "pending",
            _ => result_word(outcome),
        };
        format!(
            "{word} ({}): {}\nnext step: {next_step}",
            problem.code, problem.message
        )
    }

    fn result(self, content: Vec<ContentBlock>, failed: bool) -> CallToolResult {
        let mut result = match failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = Some(Value::Object(self.0));
        result
    }
}

/// What a model can do about it. Nothing here says how a person answers, or what would be let through.
fn next_step(code: &str, outcome: Outcome) -> &'static str {
    match code {
        "approval_pending" => {
            "tell your person that it waits, with its id; once they answered, make exactly this call \
             again: it then runs once, or says that they declined"
        }
        "approval_denied" => "a person said no: do not try the same in another way; ask them",
        "rate_limited" | "budget_exhausted" => {
            "stop calling for now, and tell your person what you still want to do"
        }
        "invalid_arguments" | "invalid_json" | "inexact_number" | "input_too_large"
        | "workspace_required" | "program_not_found" | "program_unreadable" => {
            "mend the arguments as the tool's input schema says, then call again"
        }
        "not_over_mcp" => "leave `interactive` out",
        "program_changed" | "changed_since_decided" => "call again when nothing changes the file",
        "unreachable" | "shutting_down" | "daemon_silent" | "no_daemon" => {
            "tell your person that palyrad does not answer; call again later"
        }
        _ => match outcome {
            Outcome::TimedOut => "give it a larger `timeout_ms`, or less to do",
            Outcome::ApprovalExpired => {
                "nobody answered in time; call again when your person is there"
            }
            Outcome::Cancelled | Outcome::Interrupted => {
                "look at what it did before you call again"
            }
            Outcome::Completed
            | Outcome::Denied
            | Outcome::ApprovalDenied
            | Outcome::Failed
            | Outcome::SandboxUnavailable => {
                "do something else, or tell your person what you need it for; they see it in their \
                 records"
            }
        },
    }
}

const fn result_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Denied => "denied",
        Outcome::ApprovalDenied => "approval_denied",
        Outcome::ApprovalExpired => "approval_expired",
        Outcome::TimedOut => "timed_out",
        Outcome::Cancelled => "cancelled",
        Outcome::Failed => "failed",
        Outcome::SandboxUnavailable => "sandbox_unavailable",
        Outcome::Interrupted => "interrupted",
    }
}

/// An output as text: of a program what it wrote, of a file its content, else the JSON.
#[must_use]
pub fn readable(output: &Value) -> String {
    let member = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let stream = |name: &str| {
        let stream = output.get(name)?;
        let bytes = || member(stream, "base64").map(|bytes| format!("[not text; base64] {bytes}"));
        member(stream, "text").or_else(bytes)
    };
    let mut text = match (stream("stdout"), stream("stderr")) {
        (None, None) => match member(output, "text") {
            Some(text) => text,
            None => serde_json::to_string_pretty(output).unwrap_or_default(),
        },
        (stdout, stderr) => {
            let mut text = stdout.unwrap_or_default();
            if let Some(stderr) = stderr.filter(|stderr| !stderr.is_empty()) {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str("[stderr]\n");
                text.push_str(&stderr);
            }
            text
        }
    };
    let hints = output.get("hints").and_then(Value::as_array);
    for hint in hints.into_iter().flatten().filter_map(Value::as_str) {
        text.push_str("\n[hint] ");
        text.push_str(hint);
    }
    text
}

/// The beginning and the end of a long text.
fn shortened(text: &str) -> String {
    let head = text.floor_char_boundary(MOST_SHOWN - TAIL);
    let tail = text.ceil_char_boundary(text.len() - TAIL);
    let (head, end) = (text.get(..head), text.get(tail..));
    let (head, end) = (head.unwrap_or_default(), end.unwrap_or_default());
    let left_out = text.len() - head.len() - end.len();
    format!(
        "{head}\n[{left_out} bytes left out here; all of it is behind the resource link]\n{end}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(outcome: Outcome, output: Option<Value>) -> CallResult {
        CallResult {
            call_id: "call_1".to_owned(),
            outcome,
            exit_code: None,
            signal: None,
            output,
            problem: None,
            approval_id: None,
            attestation: Some(json!({"attestation_id": "att_1"})),
        }
    }

    fn text(result: &CallToolResult) -> String {
        result
            .content
            .iter()
            .find_map(|it| it.as_text())
            .unwrap()
            .text
            .clone()
    }

    #[test]
    fn a_program_is_what_it_wrote_and_how_it_ended() {
        let output = json!({"stdout": {"text": "out"}, "stderr": {"text": "bad\n"}});
        let mut ran = result(Outcome::Completed, Some(output));
        ran.exit_code = Some(3);
        let told = finished(&ran);
        assert_eq!(text(&told), "out\n[stderr]\nbad\n\n[exit code 3]");
        assert_eq!(told.is_error, Some(true));
        let said = told.structured_content.unwrap();
        assert_eq!(said["decision"], "permitted");
        assert_eq!(
            (&said["exit_code"], &said["attestation_id"]),
            (&json!(3), &json!("att_1"))
        );
    }

    #[test]
    fn a_long_output_is_behind_a_link() {
        let long = "é".repeat(MOST_SHOWN);
        let told = finished(&result(Outcome::Completed, Some(json!({"text": long}))));
        let said = told.structured_content.clone().unwrap();
        assert_eq!(said["output_resource"], "palyra://calls/call_1/output");
        assert!(said.get("output").is_none());
        assert!(text(&told).len() < MOST_SHOWN + 200);
        assert!(matches!(
            told.content.last(),
            Some(ContentBlock::ResourceLink(_))
        ));
    }

    #[test]
    fn no_denial_says_how_to_decide() {
        let codes = [
            "approval_pending",
            "approval_denied",
            "policy_denied",
            "tool_disabled",
            "no_approver",
            "rate_limited",
            "secret_in_arguments",
            "agent_paused",
            "anything",
        ];
        for code in codes {
            let problem = Problem {
                code: code.to_owned(),
                message: "no".to_owned(),
                next_step: "answer with `palyra approvals decide X --decision allow`".to_owned(),
            };
            let told = refused(&problem);
            assert_eq!(told.is_error, Some(true), "{code}");
            let all = serde_json::to_string(&told).unwrap();
            for command in ["palyra ", "decide", "--", "posture", "grant"] {
                assert!(!all.contains(command), "{code}: {all}");
            }
        }
    }

    #[test]
    fn only_addresses_of_outputs_are_read() {
        assert_eq!(
            call_of_uri("palyra://calls/call_01ab/output"),
            Some("call_01ab")
        );
        for wrong in [
            "palyra://calls//output",
            "palyra://calls/../output",
            "palyra://calls/a/b/output",
            "palyra://calls/a%2f/output",
            "file:///etc/passwd",
            "palyra://calls/call_1/outputs",
        ] {
            assert_eq!(call_of_uri(wrong), None, "{wrong}");
        }
    }
}
