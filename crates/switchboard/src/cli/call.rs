//! `call`: run a tool by hand.

use std::io::{IsTerminal as _, Read as _, Write as _};

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Global;
use super::client::{Client, problem, segment};
use super::lists::{all_tools, named};
use super::output::{self, Failure, line};
use super::sse::Events;
use crate::redact::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// The tool's name.
    pub(super) tool: String,
    /// Its arguments. Each is taken as JSON if it is (5, true, {"a":1}), else as text. KEY:=TEXT is always text.
    #[arg(value_name = "KEY=VALUE")]
    args: Vec<String>,
    /// The same, for an argument that could be taken for something else.
    #[arg(long = "arg", short = 'a', value_name = "KEY=VALUE")]
    more_args: Vec<String>,
    /// All arguments as one JSON object; - reads it from stdin. --json '{…}' is the same.
    #[arg(long = "args-json", value_name = "JSON", conflicts_with_all = ["args", "more_args"])]
    args_json: Option<String>,
    /// How long it may take: milliseconds, or a number with ms, s or m, such as 3s. Progress extends it.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    timeout: Option<u64>,
    /// The session that the call belongs to.
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Run it once, however often this command is repeated with the same key.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(super) async fn run(global: &Global, args: CallArgs) -> Result<(), Failure> {
    run_in(global, args, None).await
}

/// Calls a tool, or a method of somebody in a channel.
pub(super) async fn run_in(global: &Global, args: CallArgs, channel: Option<&str>) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let mut body = json!({ "args": arguments(&client, &args).await? });
    if let Some(ms) = args.timeout {
        body["timeout_ms"] = json!(ms);
    }
    if let Some(session) = &args.session {
        body["session_key"] = json!(session);
    }
    if let Some(key) = &args.idempotency_key {
        body["idempotency_key"] = json!(key);
    }
    let request = client
        .request(Method::POST, &format!("/v1/tools/{}/call{}", segment(&args.tool), in_channel(channel)))
        .header("accept", "text/event-stream")
        .json(&body);
    let response = client.send(request).await?;
    let id = response.headers().get("x-call-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let mut events = Events::new(response);
    let mut shown = Shown::default();
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|error| client.unreachable(&error))?,
            _ = tokio::signal::ctrl_c() => {
                shown.clear();
                let _ = client.send(client.request(Method::DELETE, &format!("/v1/calls/{id}"))).await;
                return Err(Failure::new(130, "cancelled"));
            }
        };
        let Some(event) = event else {
            return Err(Failure::other("the gateway ended the call without an outcome"));
        };
        match event.name.as_str() {
            "progress" => shown.progress(&event.data),
            "chunk" => shown.chunk(&event.data),
            "done" => {
                shown.clear();
                return done(global, &event.data);
            }
            "error" => {
                shown.clear();
                if global.json {
                    output::json(&event.data)?;
                }
                let failure = problem(reqwest::StatusCode::BAD_GATEWAY, &event.data);
                return Err(match failure.code {
                    6 => failure
                        .hint(format!("switchboard tools {} shows its arguments; KEY:=VALUE passes text", args.tool)),
                    7 => failure.hint("give it more time with --timeout, such as --timeout 60s"),
                    _ => failure,
                });
            }
            _ => {}
        }
    }
}

/// What is read of the last event; the result is left as it came.
#[derive(Deserialize)]
struct Done<'a> {
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The same of a part of the result.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

fn in_channel(channel: Option<&str>) -> String {
    channel.map(|channel| format!("?channel={}", segment(channel))).unwrap_or_default()
}

fn done(global: &Global, data: &str) -> Result<(), Failure> {
    if global.json {
        return output::json(data);
    }
    let Ok(Done { result }) = serde_json::from_str(data) else {
        return Err(Failure::other("the gateway's answer cannot be read"));
    };
    match serde_json::from_str(result.get()) {
        Ok(Value::String(text)) => output::lines(&text),
        Ok(result) => line(&output::pretty(&result)),
        // JSON by its grammar, such as 1e999, and yet no value: what the tool said is shown as it is.
        Err(_) => output::lines(result.get()),
    }
}

/// Progress and chunks go to stderr: stdout has the result alone.
#[derive(Default)]
struct Shown {
    /// A progress line that the next output has to overwrite.
    open: bool,
}

impl Shown {
    fn progress(&mut self, data: &str) {
        let Ok(update) = serde_json::from_str::<Value>(data) else { return };
        let done = update["progress"].as_f64().unwrap_or(0.0);
        let amount = match update["total"].as_f64() {
            Some(total) if total > 0.0 => format!("{:3.0}%", 100.0 * done / total),
            _ => format!("{done}"),
        };
        let text = format!("{amount} {}", printable(update["message"].as_str().unwrap_or_default()));
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            let _ = write!(err, "\r\x1b[2K{text}");
            self.open = true;
        } else {
            let _ = writeln!(err, "{text}");
        }
    }

    fn chunk(&mut self, data: &str) {
        let Ok(Chunk { content }) = serde_json::from_str(data) else { return };
        self.clear();
        let text = serde_json::from_str::<String>(content.get()).unwrap_or_else(|_| format!("{content}\n"));
        // Output of a command keeps its line breaks; nothing else of it may steer the terminal.
        let text: Vec<_> = text.split('\n').map(|line| printable(line).into_owned()).collect();
        let _ = write!(std::io::stderr().lock(), "{}", text.join("\n"));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

async fn arguments(client: &Client, args: &CallArgs) -> Result<Value, Failure> {
    if let Some(text) = &args.args_json {
        let text = if text == "-" {
            let mut input = String::new();
            std::io::stdin()
                .read_to_string(&mut input)
                .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
            input
        } else {
            text.clone()
        };
        return serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("--args-json is not JSON: {error}")));
    }
    let mut object = Map::new();
    let mut guessed = Vec::new();
    for arg in args.args.iter().chain(&args.more_args) {
        let (key, value, text) = parse_arg(arg).ok_or_else(|| {
            Failure::usage(format!("the argument \"{}\" must be KEY=VALUE", printable(arg)))
                .hint("switchboard call TOOL query=cats limit=5")
        })?;
        if !value.is_string() {
            guessed.push((key.clone(), text.to_owned()));
        }
        object.insert(key, value);
    }
    if !guessed.is_empty() {
        // `content=42` is a text where the tool wants one.
        let tools = all_tools(client).await?;
        let schema = named(&tools, &args.tool).map(|tool| &tool["input_schema"]["properties"]);
        for (key, text) in guessed {
            if schema.is_some_and(|properties| wants_text(&properties[&key]["type"], &object[&key])) {
                object.insert(key, text.into());
            }
        }
    }
    Ok(Value::Object(object))
}

/// Whether a type takes texts, and not what this value is.
fn wants_text(wanted: &Value, value: &Value) -> bool {
    let takes = |kind: &str| wanted == kind || wanted.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
    let as_it_is = match value {
        Value::Null => takes("null"),
        Value::Bool(_) => takes("boolean"),
        Value::Number(_) => takes("number") || takes("integer"),
        Value::Array(_) => takes("array"),
        Value::Object(_) => takes("object"),
        Value::String(_) => true,
    };
    takes("string") && !as_it_is
}

/// The key, the value that is meant most likely, and the text as it was typed.
fn parse_arg(arg: &str) -> Option<(String, Value, &str)> {
    let (key, value) = arg.split_once('=')?;
    let (key, literal) = key.strip_suffix(':').map_or((key, false), |key| (key, true));
    if key.is_empty() {
        return None;
    }
    let meant = if literal {
        Value::String(value.into())
    } else {
        serde_json::from_str(value).unwrap_or_else(|_| value.into())
    };
    Some((key.to_owned(), meant, value))
}

/// A time as people write it, in milliseconds.
fn milliseconds(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "" | "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        _ => None,
    };
    let time = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    time.ok_or_else(|| "a time is a number of milliseconds, or a number with ms, s or m, such as 3s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_time(text: &str, expected: Option<u64>) {
        assert_eq!(milliseconds(text).ok(), expected, "{text}");
    }

    #[test]
    fn times_may_have_a_unit() {
        check_time("250", Some(250));
        check_time("250ms", Some(250));
        check_time("3s", Some(3_000));
        check_time("2 min", Some(120_000));
        check_time("3h", None);
        check_time("-1", None);
        check_time("1.5s", None);
        check_time("s", None);
        check_time("99999999999999999999", None);
        check_time("18446744073709551615m", None);
    }

    #[track_caller]
    fn check(arg: &str, expected: Option<(&str, Value)>) {
        assert_eq!(
            parse_arg(arg).map(|(key, value, _)| (key, value)),
            expected.map(|(key, value)| (key.to_owned(), value))
        );
    }

    #[test]
    fn arguments_are_json_where_they_can_be() {
        check("from=3", Some(("from", json!(3))));
        check("text=hello there", Some(("text", json!("hello there"))));
        check("zip:=01234", Some(("zip", json!("01234"))));
        check("n:=5", Some(("n", json!("5"))));
        check("list=[1,2]", Some(("list", json!([1, 2]))));
        check("url=http://a/?b=c", Some(("url", json!("http://a/?b=c"))));
        check("empty=", Some(("empty", json!(""))));
        check("nothing", None);
        check("=5", None);
    }

    #[test]
    fn a_tool_that_wants_a_text_gets_one() {
        assert!(wants_text(&json!("string"), &json!(42)) && wants_text(&json!(["string", "null"]), &json!(true)));
        assert!(!wants_text(&json!(["string", "number"]), &json!(42)) && !wants_text(&json!("integer"), &json!(42)));
        assert!(!wants_text(&Value::Null, &json!(42)));
    }
}
