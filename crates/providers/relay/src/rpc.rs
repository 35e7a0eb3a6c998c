//! The lines of the relay's protocol: JSON-RPC 2.0, or the greeting that some clients send first.

use std::fmt;

use sa_core::{CallError, CallErrorKind, RawJson};
use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::connection::MAX_RUNNING;

pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;

/// The greeting of some clients. It gets no answer.
const GREETING: &[u8] = b"OUBLIETTE-";
/// The maximum length of an id, which is part of each answer.
const MAX_ID: usize = 1_024;

#[derive(Debug)]
pub(crate) enum Incoming {
    /// Nothing to answer.
    Nothing,
    One(Result<Request, Fault>),
    Batch(Vec<Result<Request, Fault>>),
}

#[derive(Debug)]
pub(crate) struct Request {
    /// `None` for a notification.
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

/// A line, or an item of a batch, that is not a valid request.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) id: Option<Box<RawValue>>,
    pub(crate) code: i32,
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Distinguishes an id of `null` from an absent id.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The items of a batch, or `None` if there are too many. The rest of them uses no memory.
struct Batch<'a>(Option<Vec<&'a RawValue>>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;

        impl<'de> Visitor<'de> for Items {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Batch<'de>, A::Error> {
                let mut items = Some(Vec::new());
                while let Some(item) = list.next_element::<&RawValue>()? {
                    items = items.filter(|items| items.len() < MAX_RUNNING);
                    if let Some(items) = &mut items {
                        items.push(item);
                    }
                }
                Ok(Batch(items))
            }
        }

        deserializer.deserialize_seq(Items)
    }
}

/// Parses a line. `first` is whether it is the first line of the connection.
pub(crate) fn decode(line: &[u8], first: bool) -> Incoming {
    let line = line.trim_ascii();
    if line.is_empty() || (first && line.starts_with(GREETING)) {
        return Incoming::Nothing;
    }
    let whole: &RawValue = match serde_json::from_slice(line) {
        Ok(whole) => whole,
        Err(error) => {
            return Incoming::One(Err(fault(
                PARSE_ERROR,
                format!("the line is not valid JSON: {error}"),
            )));
        }
    };
    if !whole.get().starts_with('[') {
        return request(whole).map_or(Incoming::Nothing, Incoming::One);
    }
    let refused = |message: String| Incoming::One(Err(fault(INVALID_REQUEST, message)));
    match serde_json::from_str::<Batch<'_>>(whole.get()) {
        Ok(Batch(Some(items))) if !items.is_empty() => {
            Incoming::Batch(items.into_iter().filter_map(request).collect())
        }
        Ok(Batch(None)) => refused(format!("a batch can have at most {MAX_RUNNING} requests")),
        _ => refused("a batch must not be empty".into()),
    }
}

/// Parses one request. Returns `None` for a response, because the gateway sends no requests here.
fn request(raw: &RawValue) -> Option<Result<Request, Fault>> {
    let invalid = |message: &str| Some(Err(fault(INVALID_REQUEST, message.into())));
    if !raw.get().starts_with('{') {
        return invalid("a request must be an object");
    }
    let envelope: Envelope<'_> = match serde_json::from_str(raw.get()) {
        Ok(envelope) => envelope,
        Err(error) => return invalid(&format!("the request is invalid: {error}")),
    };
    if envelope.id.is_some_and(|id| !is_id(id.get())) {
        return invalid("an id must be a number, a string or null");
    }
    if envelope.id.is_some_and(|id| id.get().len() > MAX_ID) {
        return invalid(&format!("an id can have at most {MAX_ID} bytes"));
    }
    let id = envelope.id.map(RawValue::to_owned);
    let Some(method) = envelope.method else {
        if envelope.result.is_some() || envelope.error.is_some() {
            return None;
        }
        return Some(Err(Fault {
            id,
            code: INVALID_REQUEST,
            message: "the request has no method".into(),
        }));
    };
    // Some clients omit the version; they are accepted.
    let version = envelope.jsonrpc.is_none_or(|version| version.get() == "\"2.0\"");
    match serde_json::from_str::<String>(method.get()) {
        Ok(method) if version => {
            Some(Ok(Request { id, method, params: envelope.params.map(RawValue::to_owned) }))
        }
        _ => {
            let message =
                if version { "method must be a string" } else { "jsonrpc must be \"2.0\"" };
            Some(Err(Fault { id, code: INVALID_REQUEST, message: message.into() }))
        }
    }
}

fn is_id(text: &str) -> bool {
    text == "null"
        || text.starts_with('"')
        || text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn fault(code: i32, message: String) -> Fault {
    Fault { id: None, code, message }
}

/// Builds the answer with a result, on one line. Line breaks inside JSON strings are escaped, and
/// others become spaces.
pub(crate) fn result(id: &RawValue, result: &RawJson) -> String {
    let result = result.as_str().replace(['\n', '\r'], " ");
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.get())
}

/// Builds the answer with the error of a call.
pub(crate) fn refused(id: Option<&RawValue>, error: &CallError) -> String {
    let code = match error.kind {
        CallErrorKind::Timeout => -32000,
        CallErrorKind::InvalidArgs => -32602,
        CallErrorKind::Offline => -32001,
        CallErrorKind::NotFound => -32002,
        CallErrorKind::NotAllowed => -32003,
        CallErrorKind::Cancelled => -32004,
        CallErrorKind::Overloaded => -32005,
        CallErrorKind::Failed => -32006,
        CallErrorKind::Conflict => -32007,
        CallErrorKind::Store => -32008,
    };
    let data =
        json!({ "kind": error.kind.as_str(), "hint": error.hint, "retryable": error.retryable });
    failed(id, code, &error.message, Some(data))
}

pub(crate) fn failed(
    id: Option<&RawValue>,
    code: i32,
    message: &str,
    data: Option<Value>,
) -> String {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}", id.map_or("null", RawValue::get))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let one = |item: &Result<Request, Fault>| match item {
            Ok(request) => {
                format!("{}#{}", request.method, request.id.as_ref().map_or("none", |id| id.get()))
            }
            Err(fault) => {
                format!("{}#{}", fault.code, fault.id.as_ref().map_or("none", |id| id.get()))
            }
        };
        let seen = match decode(line.as_bytes(), false) {
            Incoming::Nothing => "nothing".to_owned(),
            Incoming::One(item) => one(&item),
            Incoming::Batch(items) => items.iter().map(one).collect::<Vec<_>>().join(" "),
        };
        assert_eq!(seen, expected, "{line}");
    }

    #[test]
    fn lines() {
        check(r#"{"jsonrpc":"2.0","id":0,"method":"caller_tool","params":{}}"#, "caller_tool#0");
        check(r#"{"id":"a","method":"x"}"#, "x#\"a\"");
        check(r#"{"jsonrpc":"2.0","method":"x"}"#, "x#none");
        check(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, "x#null");
        check("  ", "nothing");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "nothing");
        check("{", "-32700#none");
        check("hello", "-32700#none");
        check("5", "-32600#none");
        check("{}", "-32600#none");
        check(r#"{"id":7}"#, "-32600#7");
        check(r#"{"id":7,"method":5}"#, "-32600#7");
        check(r#"{"jsonrpc":"1.0","id":7,"method":"x"}"#, "-32600#7");
        check(r#"{"id":{},"method":"x"}"#, "-32600#none");
        check("[]", "-32600#none");
        check(&format!("[{}1]", "1,".repeat(MAX_RUNNING)), "-32600#none");
        check(&format!(r#"{{"id":"{}","method":"x"}}"#, "x".repeat(MAX_ID)), "-32600#none");
        check(r#"[1,{"id":2,"method":"x"}]"#, "-32600#none x#2");
    }

    #[test]
    fn a_greeting_is_accepted_once() {
        assert!(matches!(decode(b"OUBLIETTE-DOWNSTREAM project", true), Incoming::Nothing));
        assert!(matches!(decode(b"OUBLIETTE-DOWNSTREAM project", false), Incoming::One(Err(_))));
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_a_short_error(
            noise in sa_hostile::noise(), first in any::<bool>(), nearly in sa_hostile::nearly(serde_json::json!({
                "jsonrpc": "2.0", "id": 1, "method": "caller_tool", "params": { "tool": "t", "arguments": {} },
            })), batched in any::<bool>(),
        ) {
            let nearly = if batched { format!("[{nearly},{nearly}]") } else { nearly };
            for line in [noise, nearly.into_bytes()] {
                let items = match decode(&line, first) {
                    Incoming::Nothing => Vec::new(),
                    Incoming::One(item) => vec![item],
                    Incoming::Batch(items) => items,
                };
                for item in items {
                    match item {
                        Ok(request) => prop_assert!(request.id.is_none_or(|id| is_id(id.get()))),
                        Err(fault) => {
                            prop_assert!(matches!(fault.code, PARSE_ERROR | INVALID_REQUEST));
                            prop_assert!(fault.message.len() < sa_hostile::SHORT);
                        }
                    }
                }
            }
        }

        #[test]
        fn any_request_is_read_back(id in any::<i64>(), method in "[a-z_]{1,20}", text in any::<String>()) {
            let line = serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "x": text } });
            let Incoming::One(Ok(request)) = decode(line.to_string().as_bytes(), true) else { panic!("{line}") };
            let read = request.id.unwrap();
            prop_assert_eq!(read.get(), id.to_string());
            prop_assert_eq!(request.method, method);
            let params: Value = serde_json::from_str(request.params.unwrap().get()).unwrap();
            prop_assert_eq!(&params["x"], &text);
        }
    }
}
