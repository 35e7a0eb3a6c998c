//! Calls in the JSON format of the history and of the APIs.

use std::borrow::{BorrowMut, Cow};

use sa_core::router::LiveCall;
use sa_core::{CallError, CallId, CallRecord, Principal, RawJson};
use sa_text::json::ObjectWriter;
use sa_text::redact;
use serde::Serialize;

/// Serializes a finished call for the history.
pub fn ended(record: &CallRecord, id: &str, payload_bytes: usize, page: String) -> String {
    let result = record.outcome.as_ref().ok().map(|output| &output.content);
    ObjectWriter::over(page)
        .text("id", id)
        .text("tool", &redact::mask_text(&record.tool))
        .maybe(record.exposed.as_deref(), |object, exposed| {
            object.text("exposed", &redact::mask_text(exposed))
        })
        .maybe(record.provider.as_ref(), |object, provider| {
            object.object("provider", |object| {
                object.text("kind", provider.kind).text("id", &provider.id)
            })
        })
        .object("principal", |object| {
            let Principal { id, name, role, .. } = &*record.principal;
            object.text("id", id).text("name", name).text("role", role.as_str())
        })
        .text("surface", record.surface)
        .maybe(record.session_key.as_deref(), |object, key| {
            object.text("session_key", &redact::mask_text(key))
        })
        .text("trace_id", record.trace.encode_trace_id(&mut [0; 32]))
        .plain("at_ms", record.at_ms)
        .maybe(record.waited, |object, waited| object.plain("waited_us", waited.as_micros() as u64))
        .plain("duration_us", record.duration.as_micros() as u64)
        .maybe(Some(record.updates).filter(|updates| *updates > 0), |object, updates| {
            object.plain("updates", updates)
        })
        .plain("ok", record.outcome.is_ok())
        .object("args", |object| payload(object, &record.args, payload_bytes))
        .maybe(result, |object, json| {
            object.object("result", |object| payload(object, json, payload_bytes))
        })
        .maybe(record.outcome.as_ref().err(), |object, error| {
            object.value("error", &Failure::from(error))
        })
        .end()
}

/// Serializes a running call in the format of a finished one. The duration is left out because it
/// differs each time.
pub fn running(call: &LiveCall, payload_bytes: usize) -> ObjectWriter<String> {
    let dispatched = call.dispatched();
    ObjectWriter::with_capacity(512 + call.args.len().min(payload_bytes))
        .text("id", call.id.encode(&mut [0; CallId::LEN]))
        .text("tool", &redact::mask_text(&call.tool))
        .maybe(call.exposed(), |object, exposed| {
            object.text("exposed", &redact::mask_text(exposed))
        })
        .maybe(dispatched.as_ref(), |object, (provider, _)| {
            object.object("provider", |object| {
                object.text("kind", provider.kind).text("id", &provider.id)
            })
        })
        .value("principal", &Who::from(&*call.principal))
        .text("surface", call.surface)
        .maybe(call.session_key.as_deref(), |object, key| {
            object.text("session_key", &redact::mask_text(key))
        })
        .text("trace_id", call.trace.encode_trace_id(&mut [0; 32]))
        .plain("at_ms", call.at_ms)
        .maybe(dispatched.as_ref(), |object, (_, waited)| {
            object.plain("waited_us", waited.as_micros() as u64)
        })
        .maybe(Some(call.updates()).filter(|updates| *updates > 0), |object, updates| {
            object.plain("updates", updates)
        })
        .object("args", |object| payload(object, &call.args, payload_bytes))
}

/// Serializes arguments or a result with secrets masked. Above the limit, only the size is
/// included.
fn payload<S: BorrowMut<String>>(
    object: ObjectWriter<S>,
    json: &RawJson,
    limit: usize,
) -> ObjectWriter<S> {
    let object = object.plain("bytes", json.len());
    if json.len() > limit {
        return object;
    }
    object.raw_text("json", &redact::mask_json(json.as_str()))
}

/// The error of a call.
#[derive(Debug, Serialize)]
pub struct Failure<'a> {
    kind: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'a, str>>,
    retryable: bool,
}

impl<'a> From<&'a CallError> for Failure<'a> {
    fn from(error: &'a CallError) -> Self {
        let message = redact::mask_text(&error.message);
        let message = match message.char_indices().nth(2_000) {
            Some((cut, _)) => format!("{}…", &message[..cut]).into(),
            None => message,
        };
        Self {
            kind: error.kind.as_str(),
            message,
            hint: error.hint.as_deref().map(redact::mask_text),
            retryable: error.retryable,
        }
    }
}

/// The principal of a call.
#[derive(Debug, Serialize)]
pub struct Who<'a> {
    id: &'a str,
    name: &'a str,
    role: &'static str,
}

impl<'a> From<&'a Principal> for Who<'a> {
    fn from(principal: &'a Principal) -> Self {
        Self { id: &principal.id, name: &principal.name, role: principal.role.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, limit: usize, kept: bool) {
        let json = RawJson::parse(text).unwrap();
        let written = payload(ObjectWriter::with_capacity(64), &json, limit).end();
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(
            (read["bytes"].as_u64(), read.get("json").is_some()),
            (Some(text.len() as u64), kept),
            "{text}"
        );
    }

    #[test]
    fn secrets_in_the_text_block_of_an_mcp_result_are_masked() {
        let text = r#"{"user":"ann","password":"canary"}"#;
        let result = serde_json::json!({ "content": [{ "type": "text", "text": text }] });
        let json = RawJson::of(&result);
        let written = payload(ObjectWriter::with_capacity(64), &json, 1_000).end();
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        let shown = &read["json"]["content"][0]["text"];
        assert_eq!(shown, r#"{"user":"ann","password":"***"}"#, "{written}");
    }

    #[test]
    fn the_history_keeps_all_that_is_not_too_large() {
        for text in
            ["{\"a\":[1,2.5,-1e30]}", r#""\u00e4""#, r#""\ud83d\ude00""#, "\"1e999\"", "1e-999"]
        {
            check(text, text.len(), true);
            check(text, text.len() - 1, false);
        }
    }
}
