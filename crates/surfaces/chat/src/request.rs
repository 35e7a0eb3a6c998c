//! Reads a client's request, with either form of function calls. Fields that the gateway does not
//! use are passed on unchanged.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sa_core::Pattern;
use sa_text::json::{Object, check_within, why};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::error::ChatError;
use crate::responses::{Settings, translate_request};

/// The maximum number of messages; no conversation has more.
pub(crate) const MAX_MESSAGES: usize = 20_000;
/// The maximum nesting of a request: a tool's schema may have 100 levels, and a few more surround
/// it.
const MAX_NESTING: usize = 110;
/// The maximum number of tools; no server accepts more.
const MAX_TOOLS: usize = 1_024;

pub(crate) type Fields = BTreeMap<String, Box<RawValue>>;

/// The OpenAI API of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    ChatCompletions,
    Responses,
}

/// A request for an answer.
#[derive(Debug)]
pub struct ChatRequest {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// Whether the client wants the token usage at the end of a stream.
    pub(crate) include_usage: bool,
    /// Whether the client uses the older form of function calls.
    pub(crate) legacy: bool,
    pub(crate) messages: Vec<Box<RawValue>>,
    /// The client's own tools, in the newer form.
    pub(crate) tools: Vec<Value>,
    /// Their names.
    pub(crate) own: HashSet<String>,
    pub(crate) choice: Option<Value>,
    pub(crate) parallel: bool,
    /// The number of requested answers.
    pub(crate) answers: u64,
    /// All other fields.
    pub(crate) fields: Fields,
    pub(crate) extension: Extension,
    /// For the Responses API: the settings that the response repeats.
    pub(crate) responses: Option<Arc<Settings>>,
}

/// Options for the gateway, in the field `switchboard` of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Extension {
    /// The gateway's tools that the model is offered.
    pub(crate) tools: Option<Choice>,
    /// Whether the answer reports the calls that the gateway ran.
    pub(crate) events: bool,
    pub(crate) session: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) max_rounds: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Choice {
    Word(String),
    Names(Vec<String>),
}

impl Choice {
    /// Reads `none`, `all`, or names separated by commas.
    pub(crate) fn of_header(text: &str) -> Self {
        match text.trim() {
            word @ ("none" | "all") => Self::Word(word.to_owned()),
            names => Self::Names(names.split(',').map(|name| name.trim().to_owned()).collect()),
        }
    }

    pub(crate) fn includes(&self, tool: &str) -> bool {
        match self {
            Self::Word(word) => word == "all",
            Self::Names(names) => names.iter().any(|name| Pattern::new(name).matches(tool)),
        }
    }
}

impl ChatRequest {
    /// Reads the body of a request. The header's choice of `tools` is used if the body has none.
    pub fn read(api: Api, body: &[u8], tools: Option<&str>) -> Result<Self, ChatError> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(ChatError::invalid("", "the request body must be a JSON object"));
        }
        let fields: Fields = serde_json::from_slice(body).map_err(|error| {
            ChatError::invalid("", format!("the request body is invalid: {}", why(&error)))
        })?;
        // The body is passed on to the model's server and must not break its parser.
        let whole = std::str::from_utf8(body)
            .map_err(|_| ChatError::invalid("", "the request body is not valid UTF-8"))?;
        check_within(MAX_NESTING, whole).map_err(|error| {
            ChatError::invalid("", format!("the request body is invalid: {}", why(&error)))
        })?;
        match api {
            Api::ChatCompletions => Self::of(fields, tools),
            Api::Responses => {
                let (fields, settings) = translate_request(fields)?;
                Ok(Self { responses: Some(Arc::new(settings)), ..Self::of(fields, tools)? })
            }
        }
    }

    fn of(mut fields: Fields, tools: Option<&str>) -> Result<Self, ChatError> {
        let model: String =
            required(&mut fields, "model", "the name of a model, as listed by GET /v1/models")?;
        let messages: Vec<Box<RawValue>> = required(&mut fields, "messages", "a list of messages")?;
        if messages.is_empty() || messages.len() > MAX_MESSAGES {
            return Err(ChatError::invalid(
                "messages",
                format!("messages must have 1 to {MAX_MESSAGES} items"),
            ));
        }
        if let Some(message) = messages.iter().position(|message| !message.get().starts_with('{')) {
            return Err(ChatError::invalid(
                "messages",
                format!("message {message} is not an object"),
            ));
        }
        let Object(mut extension): Object<Extension> =
            optional(&mut fields, "switchboard")?.unwrap_or_default();
        if let Some(Choice::Word(word)) = &extension.tools
            && !matches!(word.as_str(), "none" | "all")
        {
            return Err(ChatError::invalid(
                "switchboard",
                "switchboard.tools must be \"none\", \"all\" or a list of names",
            ));
        }
        extension.tools = extension.tools.or_else(|| tools.map(Choice::of_header));

        let modern: Option<Vec<Value>> = optional(&mut fields, "tools")?;
        let functions: Option<Vec<Value>> = optional(&mut fields, "functions")?;
        let choice: Option<Value> = optional(&mut fields, "tool_choice")?;
        let function_call: Option<Value> = optional(&mut fields, "function_call")?;
        let legacy = functions.is_some() || function_call.is_some();
        if legacy && (modern.is_some() || choice.is_some()) {
            return Err(ChatError::invalid(
                "functions",
                "tools and functions cannot be used in one request",
            ));
        }
        let tools = match (modern, functions) {
            (Some(tools), _) => tools,
            (None, Some(functions)) => functions
                .into_iter()
                .map(|function| json!({ "type": "function", "function": function }))
                .collect(),
            (None, None) => Vec::new(),
        };
        if tools.len() > MAX_TOOLS {
            return Err(ChatError::invalid(
                "tools",
                format!("a request can have at most {MAX_TOOLS} tools"),
            ));
        }
        let stream_options: Option<Value> = peek(&fields, "stream_options")?;
        Ok(Self {
            model,
            stream: peek(&fields, "stream")?.unwrap_or(false),
            include_usage: stream_options.is_some_and(|options| options["include_usage"] == true),
            legacy,
            own: tools.iter().filter_map(tool_name).map(ToOwned::to_owned).collect(),
            tools,
            choice: choice.or_else(|| function_call.map(modern_choice)),
            parallel: peek(&fields, "parallel_tool_calls")?.unwrap_or(true),
            answers: peek(&fields, "n")?.unwrap_or(1),
            messages,
            fields,
            extension,
            responses: None,
        })
    }

    /// Returns whether the client wants the answer as a stream.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Returns the session and the channel that add further tools.
    pub fn scopes(&self) -> (Option<&str>, Option<&str>) {
        (self.extension.session.as_deref(), self.extension.channel.as_deref())
    }

    /// Returns the tool choice for a round. A choice that forces a call is used only once, because
    /// the model would otherwise never answer.
    pub(crate) fn choice(&self, first: bool) -> Option<Cow<'_, Value>> {
        let choice = self.choice.as_ref()?;
        if first {
            return Some(Cow::Borrowed(choice));
        }
        match (choice["type"].as_str(), choice.as_str()) {
            (_, Some("required")) | (Some("function" | "custom"), _) => {
                Some(Cow::Owned(json!("auto")))
            }
            (Some("allowed_tools"), _) => {
                let mut choice = choice.clone();
                if let Some(allowed) =
                    choice.get_mut("allowed_tools").and_then(Value::as_object_mut)
                {
                    allowed.insert("mode".into(), json!("auto"));
                }
                Some(Cow::Owned(choice))
            }
            _ => Some(Cow::Borrowed(choice)),
        }
    }
}

/// Returns the name of a tool of any type that has one.
pub(crate) fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str().or_else(|| tool["custom"]["name"].as_str())
}

fn modern_choice(function_call: Value) -> Value {
    match function_call.get("name") {
        Some(name) => json!({ "type": "function", "function": { "name": name } }),
        None => function_call,
    }
}

pub(crate) fn required<T: for<'a> Deserialize<'a>>(
    fields: &mut Fields,
    name: &str,
    what: &str,
) -> Result<T, ChatError> {
    optional(fields, name)?
        .ok_or_else(|| ChatError::invalid(name, format!("{name} is missing: {what}")))
}

pub(crate) fn optional<T: for<'a> Deserialize<'a>>(
    fields: &mut Fields,
    name: &str,
) -> Result<Option<T>, ChatError> {
    let found = peek(fields, name);
    fields.remove(name);
    found
}

pub(crate) fn peek<T: for<'a> Deserialize<'a>>(
    fields: &Fields,
    name: &str,
) -> Result<Option<T>, ChatError> {
    // Clients send empty fields as null.
    let Some(raw) = fields.get(name).filter(|raw| raw.get() != "null") else { return Ok(None) };
    serde_json::from_str(raw.get())
        .map_err(|error| ChatError::invalid(name, format!("{name} is invalid: {}", why(&error))))
}

/// Converts a value into raw JSON for a request.
pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<ChatRequest, ChatError> {
        ChatRequest::read(Api::ChatCompletions, body.to_string().as_bytes(), None)
    }

    #[track_caller]
    fn check_mistake(body: &Value, param: &str) {
        let error = read(body).unwrap_err();
        assert_eq!(
            (error.status, error.param.as_deref().unwrap_or_default()),
            (400, param),
            "{body}"
        );
    }

    #[test]
    fn mistakes_name_the_field() {
        let hello = json!([{ "role": "user", "content": "hello" }]);
        check_mistake(&json!([]), "");
        check_mistake(&json!({ "messages": hello }), "model");
        check_mistake(&json!({ "model": "m" }), "messages");
        check_mistake(&json!({ "model": "m", "messages": [] }), "messages");
        check_mistake(&json!({ "model": "m", "messages": ["hello"] }), "messages");
        check_mistake(&json!({ "model": 5, "messages": hello }), "model");
        check_mistake(&json!({ "model": null, "messages": hello }), "model");
        check_mistake(&json!({ "model": "m", "messages": hello, "stream": "yes" }), "stream");
        check_mistake(&json!({ "model": "m", "messages": hello, "tools": {} }), "tools");
        check_mistake(
            &json!({ "model": "m", "messages": hello, "tools": [], "functions": [] }),
            "functions",
        );
        check_mistake(
            &json!({ "model": "m", "messages": hello, "switchboard": { "tool": 1 } }),
            "switchboard",
        );
        check_mistake(
            &json!({ "model": "m", "messages": hello, "switchboard": { "tools": "some" } }),
            "switchboard",
        );
    }

    #[test]
    fn invalid_schemas_are_not_forwarded() {
        let deep = format!("{}{}", "[".repeat(MAX_NESTING), "]".repeat(MAX_NESTING));
        let is_read = |field: &str, value: &str| {
            let body = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"{field}":{value}}}"#
            );
            ChatRequest::read(Api::ChatCompletions, body.as_bytes(), None).is_ok()
        };
        let mut fields =
            vec![("user", r#""\ud800""#), ("temperature", "1e999"), ("metadata", &deep)];
        fields.retain(|(field, value)| is_read(field, value));
        assert!(fields.is_empty(), "{fields:?}");
        assert!(is_read("metadata", &deep[1..deep.len() - 1]), "as deep as it may be");
    }

    #[test]
    fn unknown_fields_are_unchanged() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"seed":18446744073709551617.10,"x":{"b":1,"a":2}}"#;
        let chat_request = ChatRequest::read(Api::ChatCompletions, body.as_bytes(), None).unwrap();
        assert_eq!(chat_request.fields["seed"].get(), "18446744073709551617.10");
        assert_eq!(chat_request.fields["x"].get(), r#"{"b":1,"a":2}"#);
        assert_eq!(chat_request.fields.len(), 2);
    }

    #[test]
    fn the_older_form_becomes_the_newer_one() {
        let chat_request = read(&json!({ "model": "m", "messages": [{ "role": "user" }],
            "functions": [{ "name": "f", "parameters": {} }], "function_call": { "name": "f" } }))
        .unwrap();
        assert!(chat_request.legacy && chat_request.own.contains("f"));
        assert_eq!(
            chat_request.tools,
            [json!({ "type": "function", "function": { "name": "f", "parameters": {} } })]
        );
        assert_eq!(
            chat_request.choice,
            Some(json!({ "type": "function", "function": { "name": "f" } }))
        );
    }

    #[test]
    fn a_choice_forces_one_round_only() {
        let choice = |choice: Value| {
            let chat_request =
                read(&json!({ "model": "m", "messages": [{}], "tool_choice": choice })).unwrap();
            chat_request.choice(false).map(Cow::into_owned)
        };
        assert_eq!(choice(json!("required")), Some(json!("auto")));
        assert_eq!(choice(json!("none")), Some(json!("none")));
        assert_eq!(
            choice(json!({ "type": "function", "function": { "name": "f" } })),
            Some(json!("auto"))
        );
        let allowed = |mode: &str| json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": [] } });
        assert_eq!(choice(allowed("required")), Some(allowed("auto")));
        for odd in [
            json!({ "type": "allowed_tools" }),
            json!({ "type": "allowed_tools", "allowed_tools": 7 }),
        ] {
            assert_eq!(choice(odd.clone()), Some(odd));
        }
    }

    const WORDS: &[&str] = &[
        "model",
        "messages",
        "role",
        "user",
        "content",
        "tools",
        "functions",
        "function",
        "function_call",
        "tool_choice",
        "allowed_tools",
        "type",
        "mode",
        "auto",
        "required",
        "name",
        "parameters",
        "stream",
        "stream_options",
        "include_usage",
        "n",
        "switchboard",
        "events",
        "session",
        "channel",
        "none",
        "all",
    ];

    fn usual() -> Value {
        json!({
            "model": "m", "messages": [{ "role": "user", "content": "x" }], "stream": true, "n": 1,
            "tools": [{ "type": "function", "function": { "name": "f" } }],
            "tool_choice": { "type": "allowed_tools", "allowed_tools": { "mode": "auto", "tools": [] } },
            "stream_options": { "include_usage": true }, "parallel_tool_calls": false,
            "switchboard": { "tools": ["a*"], "events": true, "max_rounds": 3, "timeout_ms": 5 },
        })
    }

    proptest::proptest! {
        #[test]
        fn every_body_can_be_read(
            noise in sa_hostile::noise(), nearly in sa_hostile::nearly(usual()), choice in sa_hostile::json(WORDS),
            header in sa_hostile::text(&["a", ",", "none", "all", "*", " "]), list in sa_hostile::list(&["all"]),
        ) {
            proptest::prop_assert!(ChatRequest::read(Api::ChatCompletions, list.as_bytes(), None).is_err());
            let extended = format!(r#"{{"model":"m","messages":[{{}}],"switchboard":{list}}}"#);
            proptest::prop_assert!(ChatRequest::read(Api::ChatCompletions, extended.as_bytes(), None).is_err());
            let forced = json!({ "model": "m", "messages": [{}], "tool_choice": choice }).to_string();
            for body in [noise, nearly.into_bytes(), forced.into_bytes()] {
                match ChatRequest::read(Api::ChatCompletions, &body, Some(&header)) {
                    Ok(chat_request) => {
                        proptest::prop_assert!((1..=MAX_MESSAGES).contains(&chat_request.messages.len()));
                        proptest::prop_assert!(chat_request.tools.len() <= MAX_TOOLS);
                        // A tool choice is never dropped after the first round.
                        proptest::prop_assert_eq!(chat_request.choice(true).is_some(), chat_request.choice(false).is_some());
                    }
                    Err(error) => {
                        proptest::prop_assert_eq!(error.status, 400);
                        proptest::prop_assert!(error.body().len() < sa_hostile::SHORT, "{} bytes", error.body().len());
                    }
                }
            }
        }
    }
}
