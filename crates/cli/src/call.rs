//! The `call` command: calls a tool.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Method;
use sa_core::{RawJson, Schema};
use sa_vault::bounded;
use serde_json::{Map, Value};

use super::client::{Client, problem, segment};
use super::ctrl_c::CtrlC;
use super::lists::{Place, all_tools, named, text};
use super::output::Failure;
use super::result::check_writable;
use super::shown::Shown;
use super::time::milliseconds;
use super::{Global, completion, sessions};
use sa_text::json::ObjectWriter;
use sa_text::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// Name of the tool.
    #[arg(add = completion::tools())]
    pub(super) tool: String,
    /// Arguments of the tool. A value that is valid JSON (5, true, {"a":1}) is sent as JSON, any
    /// other value as text. KEY:=TEXT always sends text.
    #[arg(value_name = "KEY=VALUE")]
    args: Vec<String>,
    /// One argument, for a KEY=VALUE that could be mistaken for an option. Can be repeated.
    #[arg(long = "arg", short = 'a', value_name = "KEY=VALUE")]
    more_args: Vec<String>,
    /// All arguments as one JSON object; - reads it from stdin. --json '{…}' does the same.
    #[arg(long = "args-json", value_name = "JSON", conflicts_with_all = ["args", "more_args"])]
    args_json: Option<String>,
    /// Timeout of the call: milliseconds, or a number with ms, s, m, h or d, such as 3s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    timeout: Option<u64>,
    /// Idle timeout of the call. Each progress report restarts it.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    idle_timeout: Option<u64>,
    /// Session that the call belongs to.
    #[arg(long, value_name = "KEY", add = completion::names(&sessions::NAMES))]
    session: Option<String>,
    /// Run the call only once, even if this command is repeated with the same key.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Write the result to this file. Images and attachments are decoded; the second one is written
    /// to FILE-2, and so on, and the result is still printed. Without attachments, text is written
    /// as text and any other result as JSON.
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn run(global: &Global, args: CallArgs) -> Result<(), Failure> {
    run_in(global, args, None).await
}

/// Calls a tool, or a method of a participant in a channel.
pub(super) async fn run_in(
    global: &Global,
    args: CallArgs,
    channel: Option<&str>,
) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let place = Place { session: args.session.as_deref(), channel };
    let sent = arguments(&client, &args, place).await?;
    // Check the output file first: if writing fails after the call, the call may not be repeatable.
    args.output.as_deref().map(check_writable).transpose()?;
    let body = ObjectWriter::with_capacity(sent.len() + 128)
        .raw("args", &sent)
        .maybe(args.timeout, |body, ms| body.plain("timeout_ms", ms))
        .maybe(args.idle_timeout, |body, ms| body.plain("idle_timeout_ms", ms))
        .maybe(args.session.as_deref(), |body, session| body.text("session_key", session))
        .maybe(args.idempotency_key.as_deref(), |body, key| body.text("idempotency_key", key))
        .end();
    let request = client
        .request(
            Method::POST,
            &format!("/v1/tools/{}/call{}", segment(&args.tool), in_channel(channel)),
        )
        .header("accept", "text/event-stream")
        .header("content-type", "application/json")
        .body(body);
    let response = client.send(request).await?;
    let id = response
        .headers()
        .get("x-call-id")
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let mut events = client.events(response)?;
    let mut shown = Shown::new(global.json);
    let mut ctrl_c = CtrlC::new()?;
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|broken| client.lost_in(&broken))?,
            () = ctrl_c.pressed() => {
                shown.failed();
                let _ = client.send(client.request(Method::DELETE, &format!("/v1/calls/{id}"))).await;
                return Err(Failure::new(130, "cancelled"));
            }
        };
        let Some(event) = event else {
            return Err(client.lost_because("the gateway ended the call without an outcome"));
        };
        match event.name.as_str() {
            "log" => own_words(&event.data).into_iter().for_each(|words| shown.note(&words)),
            "progress" => shown.progress(&event.data),
            "chunk" => shown.chunk(&event.data),
            "done" => return shown.done(&event.data, args.output.as_deref()),
            "error" => {
                shown.failed();
                let failure = problem(reqwest::StatusCode::BAD_GATEWAY, &event.data);
                return Err(match (failure.code, failure.hint.as_deref()) {
                    // The gateway validated the arguments against the schema. Errors that the tool
                    // itself reports do not mention `input_schema`.
                    (6, Some(hint)) if hint.contains("input_schema") => {
                        let (tool, options) = (printable(&args.tool), place.options());
                        let as_text = args.as_text(&client, &sent, place).await.unwrap_or_default();
                        failure.hint(format!(
                            "run `switchboard tools {tool}{options}` to see its arguments{as_text}"
                        ))
                    }
                    (7, _) => failure.hint("set a longer timeout, such as --timeout 60s"),
                    _ => failure,
                });
            }
            _ => {}
        }
    }
}

impl CallArgs {
    /// Returns a hint on how to pass an argument as text. The hint is given if the value was parsed
    /// as JSON and the schema wants text.
    async fn as_text(&self, client: &Client, sent: &RawJson, place: Place<'_>) -> Option<String> {
        let sent = &sent.to_value().ok()?;
        let typed: Vec<_> =
            self.args.iter().chain(&self.more_args).filter_map(|arg| parse_arg(arg)).collect();
        let tools = all_tools(client, place).await.ok()?;
        let schema = &named(&tools, &self.tool)?["input_schema"];
        let mut taken = typed.into_iter().filter(|(key, _, _)| !sent[key].is_string());
        let (key, _, text) =
            taken.find(|(key, _, text)| mended_by_text(schema, sent, key, text))?;
        Some(format!("; use {}:={} to pass it as text", printable(&key), printable(text)))
    }
}

/// Reports whether the argument has the wrong type as sent, and is valid as the text that was
/// typed.
fn mended_by_text(schema: &Value, sent: &Value, key: &str, text: &str) -> bool {
    let schema = Schema::new(RawJson::of(schema));
    let has = |arguments: &Value, mistake: fn(&str) -> bool| {
        let checked = schema.validate(&RawJson::of(arguments));
        let mistakes = checked.err().map(|error| error.to_string()).unwrap_or_default();
        mistakes.split("; ").any(|wrong| is_about(wrong, key) && mistake(wrong))
    };
    // Only type errors count. A number that is out of range does not become valid as text.
    let of_kind =
        |wrong: &str| [" must be ", "'anyOf'", "'oneOf'"].iter().any(|words| wrong.contains(words));
    let mut as_text = sent.clone();
    as_text[key] = text.into();
    has(sent, of_kind) && !has(&as_text, |_| true)
}

fn is_about(mistake: &str, key: &str) -> bool {
    mistake.starts_with(&format!("\"{key}\""))
}

fn in_channel(channel: Option<&str>) -> String {
    channel.map(|channel| format!("?channel={}", segment(channel))).unwrap_or_default()
}

/// Returns the gateway's own message from a log event, for example which operator it waits for. Log
/// messages of tools are not shown.
fn own_words(log: &str) -> Option<String> {
    let log: Value = serde_json::from_str(log).ok()?;
    (log["logger"] == sa_core::router::OWN).then(|| text(&log["data"]).to_owned())
}

/// Builds the arguments exactly as they were typed. Numbers are not reformatted on the way to the
/// tool.
async fn arguments(client: &Client, args: &CallArgs, place: Place<'_>) -> Result<RawJson, Failure> {
    if let Some(text) = &args.args_json {
        let text = if text == "-" {
            bounded::text_of(std::io::stdin(), bounded::BODY)
                .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?
        } else {
            text.clone()
        };
        return RawJson::parse(&text).map_err(|error| {
            Failure::usage(format!("--args-json is not valid JSON: {error}")).hint(
                r#"quote the keys, as in `--args-json '{"key":"value"}'`; or pass each argument as key=value"#,
            )
        });
    }
    let mut object = Map::new();
    let mut guessed = BTreeMap::new();
    for arg in args.args.iter().chain(&args.more_args) {
        let (key, value, text) = parse_arg(arg).ok_or_else(|| {
            let hint = if arg.trim_start().starts_with('{') {
                "run `switchboard call TOOL --json '{\"query\":\"cats\"}'` to pass all arguments as one object".to_owned()
            } else {
                format!(
                    "run `switchboard tools {}{}` to see its arguments and an example",
                    printable(&args.tool),
                    place.options()
                )
            };
            Failure::usage(format!("the argument \"{}\" must be KEY=VALUE", printable(arg))).hint(hint)
        })?;
        if !value.is_string() {
            guessed.insert(key.clone(), text);
        }
        if object.contains_key(&key) {
            let key = printable(&key);
            return Err(Failure::usage(format!("the argument \"{key}\" is given twice"))
                .hint(format!("give it once; for a list, use `{key}='[\"a\",\"b\"]'`")));
        }
        object.insert(key, value);
    }
    if !guessed.is_empty() {
        // `content=42` is sent as text if the tool's schema expects text.
        let tools = all_tools(client, place).await?;
        let schema = named(&tools, &args.tool).map(|tool| &tool["input_schema"]["properties"]);
        guessed.retain(|key, text| {
            let is_text =
                schema.is_some_and(|properties| wants_text(&properties[key]["type"], &object[key]));
            if is_text {
                object.insert(key.clone(), (*text).into());
            }
            !is_text
        });
    }
    let written = |(key, value): (&String, &Value)| {
        let value = guessed.get(key).map_or_else(|| value.to_string(), |text| (*text).to_owned());
        format!("{}:{value}", Value::from(key.as_str()))
    };
    let fields: Vec<String> = object.iter().map(written).collect();
    RawJson::parse(&format!("{{{}}}", fields.join(",")))
        .map_err(|error| Failure::usage(format!("the arguments cannot be read: {error}")))
}

/// Reports whether the type accepts text, but not the type of this value.
fn wants_text(wanted: &Value, value: &Value) -> bool {
    let takes = |kind: &str| {
        wanted == kind || wanted.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind))
    };
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

/// Returns the key, the value parsed as JSON if possible, and the text as typed.
pub(super) fn parse_arg(arg: &str) -> Option<(String, Value, &str)> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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

    #[track_caller]
    fn check_mended(about: Value, sent: Value, text: &str, mended: bool) {
        let schema = json!({ "properties": { "a": about } });
        assert_eq!(mended_by_text(&schema, &json!({ "a": sent }), "a", text), mended, "{schema}");
    }

    #[test]
    fn a_text_is_offered_only_where_it_is_wanted() {
        check_mended(json!({ "anyOf": [{ "type": "string" }] }), json!(5), "5", true);
        check_mended(
            json!({ "oneOf": [{ "type": "string" }, { "const": 4 }] }),
            json!(5),
            "5",
            true,
        );
        check_mended(json!({ "type": "integer", "maximum": 100 }), json!(200), "200", false);
        check_mended(json!({ "maximum": 100 }), json!(200), "200", false);
        check_mended(json!({ "enum": ["1", "2"] }), json!(1), "1", true);
        check_mended(json!({ "type": "boolean" }), json!(1), "1", false);
        check_mended(json!({ "type": "string", "minLength": 2 }), json!(5), "5", false);
    }

    #[test]
    fn a_tool_that_wants_a_text_gets_one() {
        assert!(
            wants_text(&json!("string"), &json!(42))
                && wants_text(&json!(["string", "null"]), &json!(true))
        );
        assert!(
            !wants_text(&json!(["string", "number"]), &json!(42))
                && !wants_text(&json!("integer"), &json!(42))
        );
        assert!(!wants_text(&Value::Null, &json!(42)));
    }
}
