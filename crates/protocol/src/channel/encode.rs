//! Encoders for the frames of the server.

use serde_json::value::RawValue;

use super::{AttachmentMeta, EXTENSIONS};
use crate::push_string;

/// The part of a stored or sent message that is the same for all its receivers.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    pub kind: &'a str,
    /// JSON.
    pub payload: &'a str,
    pub sender: &'a str,
    pub at_ms: i64,
    /// JSON.
    pub sender_metadata: &'a str,
    pub attachments: &'a [AttachmentMeta],
}

/// Encodes the envelope as a JSON object, which [`encode_message`] completes.
pub fn encode_body(envelope: &Envelope<'_>) -> String {
    let room = envelope.payload.len()
        + envelope.sender_metadata.len()
        + envelope.kind.len()
        + envelope.sender.len();
    let mut out = String::with_capacity(room + 96);
    out.push_str("{\"type\":");
    push_string(&mut out, envelope.kind);
    out.push_str(",\"payload\":");
    out.push_str(envelope.payload);
    out.push_str(",\"senderId\":");
    push_string(&mut out, envelope.sender);
    out.push_str(&format!(",\"ts\":{},\"senderMetadata\":", envelope.at_ms));
    out.push_str(envelope.sender_metadata);
    if !envelope.attachments.is_empty() {
        out.push_str(",\"attachmentMeta\":");
        out.push_str(&serde_json::to_string(envelope.attachments).unwrap_or_else(|_| "[]".into()));
    }
    out.push('}');
    out
}

/// Encodes a message for one receiver. `kind` is `persisted`, `ephemeral` or `replay`; `body` is
/// the output of [`encode_body`].
pub fn encode_message(
    kind: &str,
    id: Option<u64>,
    body: &str,
    reference: Option<i64>,
    duplicate: bool,
) -> String {
    let mut out = String::with_capacity(body.len() + 80);
    out.push_str("{\"kind\":\"");
    out.push_str(kind);
    out.push('"');
    if let Some(id) = id {
        out.push_str(&format!(",\"id\":{id}"));
    }
    out.push(',');
    out.push_str(
        body.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default(),
    );
    if let Some(reference) = reference {
        out.push_str(&format!(",\"ref\":{reference}"));
    }
    if duplicate {
        out.push_str(",\"duplicate\":true");
    }
    out.push('}');
    out
}

/// Encodes the error that a participant receives when the server rejects its frame.
pub fn encode_error(error: &str, code: &str, reference: Option<i64>) -> String {
    let mut out = String::from("{\"kind\":\"error\",\"error\":");
    push_string(&mut out, error);
    out.push_str(",\"code\":");
    push_string(&mut out, code);
    if let Some(reference) = reference {
        out.push_str(&format!(",\"ref\":{reference}"));
    }
    out.push('}');
    out
}

/// Acknowledges a close. The server closes the socket after this frame.
pub fn encode_closed(reference: i64) -> String {
    format!("{{\"kind\":\"persisted\",\"ref\":{reference}}}")
}

/// The frame that a participant receives when all the messages that it missed have been sent.
#[derive(Debug, Clone, Copy)]
pub struct Ready<'a> {
    pub participant: &'a str,
    pub epoch: &'a str,
    pub last_id: u64,
    /// Whether the participant has received every message since the point from which it resumed.
    /// Absent when it did not resume.
    pub recovered: Option<bool>,
    /// JSON: the participants that are present, by id. Only for participants that asked for it.
    pub roster: Option<&'a str>,
    /// The context that the channel belongs to, if it has one.
    pub context: Option<&'a str>,
    /// JSON: the configuration with which the channel was created.
    pub config: Option<&'a str>,
}

pub fn encode_ready(ready: &Ready<'_>) -> String {
    let mut out = String::from("{\"kind\":\"ready\",\"participantId\":");
    push_string(&mut out, ready.participant);
    out.push_str(",\"epoch\":");
    push_string(&mut out, ready.epoch);
    out.push_str(&format!(",\"lastId\":{}", ready.last_id));
    if let Some(recovered) = ready.recovered {
        out.push_str(&format!(",\"recovered\":{recovered}"));
    }
    if let Some(roster) = ready.roster {
        out.push_str(",\"roster\":");
        out.push_str(roster);
    }
    if let Some(context) = ready.context {
        out.push_str(",\"contextId\":");
        push_string(&mut out, context);
    }
    if let Some(config) = ready.config {
        out.push_str(",\"channelConfig\":");
        out.push_str(config);
    }
    out.push_str(",\"extensions\":[");
    for (at, extension) in EXTENSIONS.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_string(&mut out, extension);
    }
    out.push_str("]}");
    out
}

/// Encodes a page of stored messages, oldest first. `more` is true if older messages exist.
pub fn encode_history(
    kind: &str,
    messages: &[Box<RawValue>],
    more: bool,
    reference: Option<i64>,
) -> String {
    let mut out = format!("{{\"kind\":\"{kind}\",\"messages\":[");
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(message.get());
    }
    out.push_str(&format!("],\"hasMore\":{more}"));
    if let Some(reference) = reference {
        out.push_str(&format!(",\"ref\":{reference}"));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_message_is_what_readers_expect() {
        let attachments = [AttachmentMeta {
            id: Some("img_1".into()),
            mime_type: "a/b".into(),
            name: None,
            size: 3,
        }];
        let body = encode_body(&Envelope {
            kind: "mess\"age",
            payload: r#"{"id":"x"}"#,
            sender: "ann",
            at_ms: 5,
            sender_metadata: "{}",
            attachments: &attachments,
        });
        let expected = json!({
            "kind": "persisted", "id": 9, "type": "mess\"age", "payload": { "id": "x" }, "senderId": "ann", "ts": 5,
            "senderMetadata": {}, "attachmentMeta": [{ "id": "img_1", "mimeType": "a/b", "size": 3 }], "ref": 4,
        });
        assert_eq!(read(&encode_message("persisted", Some(9), &body, Some(4), false)), expected);
        assert_eq!(read(&encode_message("ephemeral", None, &body, None, false)).get("id"), None);
    }

    #[test]
    fn the_other_frames_are_json_too() {
        assert_eq!(read(&encode_error("a\"b", "c", Some(1)))["ref"], 1);
        let ready = Ready {
            participant: "p",
            epoch: "e",
            last_id: 3,
            recovered: Some(false),
            roster: Some("{}"),
            context: Some("c\"1"),
            config: Some("{\"a\":1}"),
        };
        let ready = read(&encode_ready(&ready));
        assert_eq!((&ready["recovered"], &ready["contextId"]), (&json!(false), &json!("c\"1")));
        assert_eq!(ready["channelConfig"], json!({ "a": 1 }));
        assert_eq!(read(&encode_history("history", &[], false, None))["messages"], json!([]));
    }
}
