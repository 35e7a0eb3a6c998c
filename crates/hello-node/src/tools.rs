//! The three tools, and the conversion of a result into a response.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sa_protocol::node::{Failure, ToolRequest, ToolResponse, ToolSpec, encode_response};
use sa_protocol::{
    ErrorKind, FrameError, MAX_TOOL_RESPONSE_BYTES, ToolResponseError, truncated_result,
};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::files::AllowedDir;

/// Returns the descriptions of the tools for the hello.
pub(crate) fn descriptions() -> Vec<ToolSpec> {
    let nothing = json!({"type": "object", "properties": {}});
    let path = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The file, relative to the allowed directory."}},
        "required": ["path"],
    });
    [
        ("node.ping", "Returns the current time of the node, in milliseconds since 1970.", nothing),
        ("node.echo", "Returns its arguments unchanged.", json!({})),
        (
            "node.fs.read_text",
            "Reads a UTF-8 text file in the allowed directory of this node.",
            path,
        ),
    ]
    .map(|(name, description, schema)| ToolSpec {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        input_schema: to_raw_value(&schema).ok(),
        annotations: to_raw_value(&json!({"readOnlyHint": true})).ok(),
        ..ToolSpec::default()
    })
    .into()
}

/// A request that owns its data, so that it can be answered on another thread.
pub(crate) struct Job {
    request_id: String,
    tool: String,
    args: Option<String>,
}

pub(crate) fn prepare(request: &ToolRequest<'_>) -> Job {
    Job {
        request_id: request.request_id.clone().into_owned(),
        tool: request.tool.clone().into_owned(),
        args: request.args.map(str::to_owned),
    }
}

/// Returns the error response to a request that cannot be read, if its id is known: a caller waits
/// for it.
pub(crate) fn unreadable(error: &FrameError) -> Option<String> {
    let request_id = error.id().filter(|_| error.frame_type() == Some("tool_request"))?;
    Some(failure(request_id, &fail(ErrorKind::InvalidArgs, error.to_string())))
}

impl Job {
    /// Runs the tool and writes the response, even if the tool fails.
    pub(crate) fn run(&self, allowed: &AllowedDir) -> String {
        self.answer(|| self.call(allowed))
    }

    /// A tool that panics has failed and is answered like any other failure. Otherwise the caller
    /// would never get an answer.
    fn answer(&self, tool: impl FnOnce() -> Result<Value, ToolResponseError>) -> String {
        let written = catch_unwind(AssertUnwindSafe(|| match tool() {
            Ok(result) => success(&self.request_id, &result.to_string()),
            Err(error) => failure(&self.request_id, &error),
        }));
        written.unwrap_or_else(|_| {
            failure(&self.request_id, &fail(ErrorKind::Failed, "the tool panicked"))
        })
    }

    fn call(&self, allowed: &AllowedDir) -> Result<Value, ToolResponseError> {
        let args: Value = match &self.args {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| fail(ErrorKind::InvalidArgs, error.to_string()))?,
            None => Value::Null,
        };
        match self.tool.to_ascii_lowercase().as_str() {
            "node.ping" => Ok(json!({"pong": true, "timestamp": crate::now_ms()})),
            "node.echo" => Ok(args),
            "node.fs.read_text" => {
                let path = args.get("path").and_then(Value::as_str);
                let path =
                    path.ok_or_else(|| fail(ErrorKind::InvalidArgs, "missing 'path': a string"))?;
                allowed.read_text(path)
            }
            other => Err(fail(ErrorKind::NotFound, format!("unknown tool: {other}"))),
        }
    }
}

/// Writes a response with this result. A result that is too large is truncated and marked as such.
fn success(request_id: &str, result: &str) -> String {
    let cut = (result.len() > MAX_TOOL_RESPONSE_BYTES)
        .then(|| truncated_result(result, MAX_TOOL_RESPONSE_BYTES));
    response(request_id, Ok(Some(cut.as_deref().unwrap_or(result))))
}

fn failure(request_id: &str, error: &ToolResponseError) -> String {
    response(request_id, Err(Failure::from(error)))
}

fn response(request_id: &str, outcome: Result<Option<&str>, Failure<'_>>) -> String {
    let mut text = String::new();
    encode_response(
        &mut text,
        &ToolResponse { request_id: request_id.into(), outcome, attachments: Vec::new() },
    );
    text
}

pub(crate) fn fail(kind: ErrorKind, message: impl Into<String>) -> ToolResponseError {
    ToolResponseError { kind, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tool: &str, args: Value, expected: Value) {
        let dir = tempfile::tempdir().unwrap();
        let job = Job { request_id: "r".into(), tool: tool.into(), args: Some(args.to_string()) };
        let answer: Value =
            serde_json::from_str(&job.run(&AllowedDir::open(dir.path()).unwrap())).unwrap();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&answer[key], value, "{answer}");
        }
    }

    #[test]
    fn answers() {
        check(
            "node.echo",
            json!([1, "é"]),
            json!({"type":"tool_response","request_id":"r","ok":true,"result":[1,"é"]}),
        );
        check("node.ping", json!({}), json!({"ok":true}));
        check(
            "node.fs.read_text",
            json!({}),
            json!({"ok":false,"error":{"kind":"invalid_args","message":"missing 'path': a string"}}),
        );
        check(
            "node.other",
            json!({}),
            json!({"ok":false,"error":{"kind":"not_found","message":"unknown tool: node.other"}}),
        );
    }

    /// The limit applies to the result, not to the rest of the response.
    #[test]
    fn a_large_echo_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let allowed = AllowedDir::open(dir.path()).unwrap();
        let echo = |result: &str| {
            let job = Job {
                request_id: "r".into(),
                tool: "node.echo".into(),
                args: Some(result.to_owned()),
            };
            job.run(&allowed)
        };
        for character in ["x", "é", "\"", "\u{1}"] {
            let each = json!(character).to_string().len() - 2;
            let padding = "x".repeat((MAX_TOOL_RESPONSE_BYTES - 2) % each);
            let fits = json!(character.repeat((MAX_TOOL_RESPONSE_BYTES - 2) / each) + &padding)
                .to_string();
            assert_eq!(fits.len(), MAX_TOOL_RESPONSE_BYTES);
            let text = echo(&fits);
            let whole =
                format!(r#"{{"type":"tool_response","request_id":"r","ok":true,"result":{fits}}}"#);
            assert!(text == whole, "{character:?}: it was cut, or changed");

            let one_more = fits.replacen('"', "\"x", 1);
            let answer: Value = serde_json::from_str(&echo(&one_more)).unwrap();
            assert_eq!(answer["result"]["_truncated"], true);
            assert_eq!(answer["result"]["_original_bytes"], MAX_TOOL_RESPONSE_BYTES + 1);
            assert!(answer["result"].to_string().len() <= MAX_TOOL_RESPONSE_BYTES);
            assert!(
                one_more.starts_with(answer["result"]["partial"].as_str().unwrap()),
                "{character:?}"
            );
        }
    }

    #[test]
    fn a_panic_is_a_failure_of_its_call() {
        let job = Job { request_id: "r".into(), tool: "node.echo".into(), args: None };
        let answer: Value = serde_json::from_str(&job.answer(|| panic!("on purpose"))).unwrap();
        assert_eq!(
            answer,
            json!({"type":"tool_response","request_id":"r","ok":false,
                   "error":{"kind":"failed","message":"the tool panicked"}})
        );
    }
}
