//! The arguments of the session tools, in both forms that clients use.

use std::fmt;
use std::time::Duration;

use sa_core::{CallError, CallErrorKind, RawJson, Schema, Tool};
use sa_http::annotations::is_repeatable;
use sa_text::json::{object, why};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum number of tools that one caller may lend.
const MAX_TOOLS: usize = 128;
const MAX_DESCRIPTION: usize = 16 * 1024;
const MAX_CALLER_ID: usize = 64;
/// The maximum duration of a long poll.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(300);

/// Arguments of `session_message`. The caller and its tools are in `context`, or next to it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NewMessage {
    pub(crate) message: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) context: Option<Context>,
    pub(crate) caller_id: Option<String>,
    #[serde(default, deserialize_with = "bounded_tools")]
    pub(crate) caller_tools: Option<Vec<ToolSpec>>,
    pub(crate) agent: Option<String>,
    /// The name that other gateways use for an agent and its workspace. It is used as an agent
    /// name if such an agent exists.
    pub(crate) project_id: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Context {
    pub(crate) caller_id: Option<String>,
    #[serde(default, deserialize_with = "bounded_tools")]
    pub(crate) caller_tools: Option<Vec<ToolSpec>>,
    pub(crate) timeout_ms: Option<u64>,
}

/// A tool as its caller declares it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ToolSpec {
    pub(crate) name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(rename = "inputSchema", alias = "input_schema", alias = "parameters")]
    input_schema: Option<Box<RawValue>>,
    #[serde(rename = "outputSchema", alias = "output_schema")]
    output_schema: Option<Box<RawValue>>,
    annotations: Option<Box<RawValue>>,
    timeout_ms: Option<u64>,
}

/// Reads a list of tools. Stops at the first tool that is too many, so that a long list takes no
/// memory.
fn bounded_tools<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<ToolSpec>>, D::Error> {
    struct BoundedTools;

    impl<'de> Visitor<'de> for BoundedTools {
        type Value = Vec<ToolSpec>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of tools")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<ToolSpec>, A::Error> {
            let mut tools = Vec::new();
            while let Some(tool) = list.next_element()? {
                if tools.len() == MAX_TOOLS {
                    let message = format_args!("a caller can offer at most {MAX_TOOLS} tools");
                    return Err(A::Error::custom(message));
                }
                tools.push(tool);
            }
            Ok(tools)
        }
    }

    /// A list that may be null.
    #[derive(Deserialize)]
    struct List(#[serde(deserialize_with = "list")] Vec<ToolSpec>);

    fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ToolSpec>, D::Error> {
        deserializer.deserialize_seq(BoundedTools)
    }

    Ok(Option::<List>::deserialize(deserializer)?.map(|List(tools)| tools))
}

/// The caller's part of a message: its name, its tools and their timeout.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    pub(crate) caller_id: Option<String>,
    pub(crate) tools: Option<Vec<ToolSpec>>,
    pub(crate) timeout: Option<Duration>,
}

impl NewMessage {
    /// Removes the caller's part from the message, from either position.
    pub(crate) fn lending(&mut self) -> Result<Lending, CallError> {
        let context = self.context.take().unwrap_or_default();
        let caller_id = context.caller_id.or(self.caller_id.take());
        let tools = context.caller_tools.or(self.caller_tools.take());
        let timeout = context.timeout_ms.or(self.timeout_ms);
        if let Some(id) = &caller_id
            && (id.is_empty()
                || id.len() > MAX_CALLER_ID
                || id.chars().any(|c| c.is_control() || c.is_whitespace()))
        {
            return Err(invalid(format!(
                "caller_id must have 1 to {MAX_CALLER_ID} bytes and no spaces"
            )));
        }
        if timeout == Some(0) {
            return Err(invalid("timeout_ms must be at least 1"));
        }
        let tools = tools.map(checked).transpose()?;
        Ok(Lending { caller_id, tools, timeout: timeout.map(Duration::from_millis) })
    }
}

#[derive(Deserialize)]
struct Typed {
    r#type: Option<serde_json::Value>,
}

fn checked(tools: Vec<ToolSpec>) -> Result<Vec<ToolSpec>, CallError> {
    let mut names = std::collections::HashSet::new();
    for tool in &tools {
        let name = tool.name.chars().take(128).flat_map(char::escape_debug).collect::<String>();
        sa_protocol::validate_tool_name(&tool.name).map_err(|error| {
            invalid(format!("caller_tools: \"{name}\" is not a valid tool name: {error}"))
        })?;
        if !names.insert(&tool.name) {
            return Err(invalid(format!("caller_tools: \"{name}\" appears twice")));
        }
        if let Some(raw) = &tool.input_schema {
            let wrong = |why: &str| {
                invalid(format!(
                    "caller_tools: the inputSchema of \"{name}\" cannot be used: {why}"
                ))
            };
            let schema = RawJson::part(raw).map_err(|error| wrong(&error.to_string()))?;
            // Agents offer it as an MCP tool, which requires an object.
            let typed =
                object::<Typed>(schema.as_str().as_bytes()).ok().and_then(|typed| typed.r#type);
            if typed.is_none_or(|typed| typed != "object") {
                return Err(wrong("it must be an object with \"type\": \"object\""));
            }
            Schema::new(schema).check().map_err(wrong)?;
        }
    }
    Ok(tools)
}

impl ToolSpec {
    /// The tool in the catalogue, named after its caller. `timeout` is the session's. A limit that
    /// the caller set is a hard one; progress extends only the configured limit.
    pub(crate) fn tool(&self, caller: &str, timeout: Duration, is_own: bool) -> Tool {
        let own = self.timeout_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
        let json =
            |raw: &Option<Box<RawValue>>| raw.as_ref().and_then(|raw| RawJson::part(raw).ok());
        let description = self.description.as_ref();
        let annotations = json(&self.annotations);
        Tool {
            preferred_name: format!("{caller}_{}", self.name),
            title: self.title.clone(),
            description: description
                .map(|text| text[..text.floor_char_boundary(MAX_DESCRIPTION)].to_owned()),
            input: json(&self.input_schema).map(Schema::new),
            output: json(&self.output_schema).map(Schema::new),
            repeatable: is_repeatable(annotations.as_ref()),
            annotations,
            timeout: Some(own.unwrap_or(timeout)),
            hard_timeout: own.is_some() || is_own,
            ..Tool::named(&self.name)
        }
    }
}

impl ToolSpec {
    /// Returns the tool's description for agents: as the caller declared it, with its exposed
    /// name.
    pub(crate) fn described(&self, exposed: &str) -> serde_json::Value {
        let mut described = serde_json::json!({ "name": self.name, "exposed_name": exposed });
        let json = |raw: &Option<Box<RawValue>>| {
            raw.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok())
        };
        let fields = [
            ("title", self.title.clone().map(Into::into)),
            ("description", self.description.clone().map(Into::into)),
            ("inputSchema", json(&self.input_schema)),
            ("outputSchema", json(&self.output_schema)),
            ("annotations", json(&self.annotations)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                described[name] = value;
            }
        }
        described
    }
}

/// Arguments of `session_events`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct EventsQuery {
    pub(crate) session_id: Option<String>,
    #[serde(alias = "after")]
    since: Option<u64>,
    /// Sent by clients of the original protocol instead of `since`. A negative value means all
    /// events.
    since_index: Option<i64>,
    pub(crate) limit: Option<usize>,
    pub(crate) wait_ms: Option<u64>,
}

impl EventsQuery {
    pub(crate) fn since(&self) -> u64 {
        self.since.or(self.since_index.and_then(|index| index.try_into().ok())).unwrap_or(0)
    }

    /// Returns whether a client of the original protocol may have sent the query. Such a client
    /// looks for the assistant's messages among the events. It omits a `since_index` of 0.
    pub(crate) fn is_original(&self) -> bool {
        self.since.is_none()
    }
}

/// Arguments of `session_end`, and of other tools for one session.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionArgs {
    pub(crate) session_id: String,
}

/// Arguments of `caller_tool_next`.
#[derive(Debug, Deserialize)]
pub(crate) struct Next {
    pub(crate) session_id: String,
    pub(crate) wait_ms: Option<u64>,
    /// Requests that the caller already handles.
    pub(crate) known: Option<Vec<String>>,
}

/// Arguments of `caller_tool_response`: an answer, or an update before it.
#[derive(Debug, Deserialize)]
pub(crate) struct Response {
    pub(crate) session_id: String,
    pub(crate) request_id: String,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<serde_json::Value>,
    pub(crate) progress: Option<f64>,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<String>,
    pub(crate) chunk: Option<Box<RawValue>>,
}

impl Response {
    /// Parses a response. The result is optional, because a tool may return nothing. But an
    /// unknown field without any result is an error: it is probably a misspelled one, and the
    /// first answer is final.
    pub(crate) fn read(json: &RawJson) -> Result<Self, CallError> {
        const FIELDS: [&str; 8] = [
            "session_id",
            "request_id",
            "result",
            "error",
            "progress",
            "total",
            "message",
            "chunk",
        ];
        let response: Self = read(json)?;
        let Self { result: None, error: None, progress: None, chunk: None, .. } = &response else {
            return Ok(response);
        };
        let fields: serde_json::Map<String, serde_json::Value> = read(json)?;
        match fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            None => Ok(response),
            Some(odd) => {
                let odd: String = odd.chars().take(64).flat_map(char::escape_debug).collect();
                Err(invalid(format!(
                    "an answer needs a \"result\" or an \"error\"; this one has only \"{odd}\""
                )))
            }
        }
    }
}

/// Returns the duration of a long poll, up to the maximum.
pub(crate) fn wait(wait_ms: Option<u64>) -> Duration {
    Duration::from_millis(wait_ms.unwrap_or(0)).min(MAX_WAIT)
}

/// Parses arguments. Unknown fields are ignored, because callers also send fields for other
/// gateways.
pub(crate) fn read<T: for<'a> Deserialize<'a>>(json: &RawJson) -> Result<T, CallError> {
    object(json.as_str().as_bytes())
        .map_err(|error| invalid(format!("the arguments are invalid: {}", why(&error))))
}

pub(crate) fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(CallErrorKind::InvalidArgs, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, caller: Option<&str>, tools: &[&str]) {
        let mut message: NewMessage = read(&RawJson::parse(json).unwrap()).unwrap();
        let lending = message.lending().unwrap();
        assert_eq!(lending.caller_id.as_deref(), caller, "{json}");
        let names: Vec<_> = lending.tools.iter().flatten().map(|tool| tool.name.clone()).collect();
        assert_eq!(names, tools, "{json}");
    }

    #[track_caller]
    fn check_refused(tools: &str) {
        let json = format!(r#"{{"message":"x","caller_tools":{tools}}}"#);
        let refused = read::<NewMessage>(&RawJson::parse(&json).unwrap())
            .and_then(|mut message| message.lending());
        assert_eq!(
            refused.map(drop).map_err(|error| error.kind),
            Err(CallErrorKind::InvalidArgs),
            "{tools}"
        );
    }

    #[test]
    fn callers_and_their_tools_stand_in_the_context_or_beside_it() {
        check(
            r#"{"message":"x","context":{"caller_id":"ant","caller_tools":[{"name":"a"}]}}"#,
            Some("ant"),
            &["a"],
        );
        check(
            r#"{"message":"x","caller_id":"ant","caller_tools":[{"name":"a"}],"context":null}"#,
            Some("ant"),
            &["a"],
        );
        check(
            r#"{"message":"x","caller_id":"ant","context":{"caller_tools":[{"name":"b"}]}}"#,
            Some("ant"),
            &["b"],
        );
        check(r#"{"message":"x","workspace_id":5,"context":{"mode":"x"}}"#, None, &[]);
    }

    #[track_caller]
    fn check_answer(rest: &str, taken: bool) {
        let json =
            RawJson::parse(&format!(r#"{{"session_id":"s","request_id":"r"{rest}}}"#)).unwrap();
        assert_eq!(Response::read(&json).is_ok(), taken, "{rest}");
    }

    #[test]
    fn an_answer_whose_result_is_misspelt_is_none() {
        check_answer("", true);
        check_answer(r#","result":null"#, true);
        check_answer(r#","result":{},"tool":"known elsewhere""#, true);
        check_answer(r#","progress":1,"of":"more""#, true);
        check_answer(r#","reslt":{"sent":true}"#, false);
        check_answer(r#","message":"done","Result":1"#, false);
    }

    #[test]
    fn tools_that_cannot_be_offered_are_refused() {
        check_refused(r#"[{"name":""}]"#);
        check_refused(r#"[{"name":"a b"}]"#);
        check_refused(r#"[{"name":"a"},{"name":"a"}]"#);
        check_refused(r#"[{"name":"a","inputSchema":[]}]"#);
        check_refused(r#"[{"name":"a","inputSchema":{"type":"nonsense"}}]"#);
        check_refused(r#"[{"description":"no name"}]"#);
        check_refused(&format!(
            "[{}]",
            (0..200).map(|n| format!("{{\"name\":\"t{n}\"}}")).collect::<Vec<_>>().join(",")
        ));
    }

    fn short(error: &CallError) -> bool {
        error.kind == CallErrorKind::InvalidArgs && error.message.len() < sa_hostile::SHORT
    }

    fn usual() -> serde_json::Value {
        serde_json::json!({
            "message": "m", "session_id": "s", "caller_id": "ann", "agent": "a", "timeout_ms": 1, "wait_ms": 5,
            "caller_tools": [{ "name": "t", "title": "T", "inputSchema": { "type": "object" }, "annotations": {} }],
            "context": { "caller_id": "bob", "caller_tools": [{ "name": "u", "parameters": {} }], "timeout_ms": 7 },
            "since": 3, "limit": 2, "known": ["r"], "request_id": "r", "result": {}, "error": { "message": "e", "kind": "failed" },
            "progress": 0.5, "total": 1.0, "chunk": "c",
        })
    }

    proptest::proptest! {
        #[test]
        fn a_list_is_no_message(list in sa_hostile::list(&["m", "s", "r", "ann"])) {
            let Ok(json) = RawJson::parse(&list) else { return Ok(()) };
            proptest::prop_assert!(read::<NewMessage>(&json).is_err() && read::<EventsQuery>(&json).is_err());
            proptest::prop_assert!(read::<SessionArgs>(&json).is_err() && read::<Next>(&json).is_err() && Response::read(&json).is_err());
        }

        #[test]
        fn input_of_callers_is_accepted_by_its_rules_or_refused_with_a_short_error(text in sa_hostile::nearly(usual())) {
            let Ok(json) = RawJson::parse(&text) else { return Ok(()) };
            match read::<NewMessage>(&json).and_then(|mut message| message.lending()) {
                Ok(lending) => {
                    let id = lending.caller_id.unwrap_or_else(|| "x".into());
                    proptest::prop_assert!((1..=MAX_CALLER_ID).contains(&id.len()) && !id.contains(char::is_whitespace));
                    for tool in lending.tools.into_iter().flatten() {
                        proptest::prop_assert!(sa_protocol::validate_tool_name(&tool.name).is_ok());
                        proptest::prop_assert_eq!(&tool.described("x")["name"], &tool.name);
                        let tool = tool.tool(&id, Duration::from_secs(1), false);
                        proptest::prop_assert!(tool.input.is_none_or(|schema| schema.check().is_ok()));
                    }
                }
                Err(error) => proptest::prop_assert!(short(&error), "{}", error.message.len()),
            }
            for error in [
                Response::read(&json).err(),
                read::<EventsQuery>(&json).err(),
                read::<Next>(&json).err(),
                read::<SessionArgs>(&json).err(),
            ].into_iter().flatten() {
                proptest::prop_assert!(short(&error), "{}", error.message.len());
            }
            let waited = read::<EventsQuery>(&json).map_or(Duration::ZERO, |query| wait(query.wait_ms));
            proptest::prop_assert!(waited <= MAX_WAIT);
        }
    }
}
