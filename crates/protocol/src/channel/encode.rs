//! Encoders for the frames of the server.

use sa_text::json::ObjectWriter;
use serde_json::value::RawValue;

use super::{AttachmentMeta, EXTENSIONS};

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
    let bytes = envelope.payload.len()
        + envelope.sender_metadata.len()
        + envelope.kind.len()
        + envelope.sender.len();
    ObjectWriter::with_capacity(bytes + 96)
        .text("type", envelope.kind)
        .raw_text("payload", envelope.payload)
        .text("senderId", envelope.sender)
        .plain("ts", envelope.at_ms)
        .raw_text("senderMetadata", envelope.sender_metadata)
        .list("attachmentMeta", envelope.attachments)
        .end()
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
    ObjectWriter::with_capacity(body.len() + 80)
        .text("kind", kind)
        .opt_plain("id", id)
        .fields_of(body)
        .opt_plain("ref", reference)
        .opt_plain("duplicate", duplicate.then_some(true))
        .end()
}

/// Encodes the error that a participant receives when the server rejects its frame.
pub fn encode_error(error: &str, code: &str, reference: Option<i64>) -> String {
    ObjectWriter::with_capacity(error.len() + 80)
        .text("kind", "error")
        .text("error", error)
        .text("code", code)
        .opt_plain("ref", reference)
        .end()
}

/// Acknowledges a close. The server closes the socket after this frame.
pub fn encode_closed(reference: i64) -> String {
    ObjectWriter::with_capacity(40).text("kind", "persisted").plain("ref", reference).end()
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
    ObjectWriter::with_capacity(200)
        .text("kind", "ready")
        .text("participantId", ready.participant)
        .text("epoch", ready.epoch)
        .plain("lastId", ready.last_id)
        .opt_plain("recovered", ready.recovered)
        .opt_raw_text("roster", ready.roster)
        .opt_text("contextId", ready.context)
        .opt_raw_text("channelConfig", ready.config)
        .value("extensions", &EXTENSIONS)
        .end()
}

/// Encodes a page of stored messages, oldest first. `more` is true if older messages exist.
pub fn encode_history(
    kind: &str,
    messages: &[Box<RawValue>],
    more: bool,
    reference: Option<i64>,
) -> String {
    ObjectWriter::with_capacity(messages.iter().map(|message| message.get().len() + 1).sum())
        .text("kind", kind)
        .value("messages", messages)
        .plain("hasMore", more)
        .opt_plain("ref", reference)
        .end()
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
