//! The channel protocol: what participants send, and what they are sent.
//!
//! A client's frame is a JSON object told apart by `action`; a server's by `kind`. Payloads and metadata pass through as
//! the text they came as. A frame with attachments is binary: see [`binary`].

pub mod binary;
mod client;
mod encode;
mod server;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use client::{encode_close, encode_get_messages_before, encode_publish, encode_update_metadata};
pub use encode::{
    Envelope, Ready, encode_body, encode_closed, encode_error, encode_history, encode_message, encode_ready,
};
pub use server::{Delivered, Delivery, ServerFrame, Welcome};

use crate::json;

/// Closed because the token is missing, unknown, or not for this channel. Final.
pub const CLOSE_UNAUTHORIZED: u16 = 4001;
/// Closed because the channel is missing, or no name for one. Final.
pub const CLOSE_CHANNEL_REQUIRED: u16 = 4002;

/// Closed because the query's contextId or channelConfig cannot be used. Final.
pub const CLOSE_INVALID_CONTEXT: u16 = 4005;
/// Closed because the channel belongs to another context. Final.
pub const CLOSE_CONTEXT_MISMATCH: u16 = 4006;

/// What a server may do beyond the protocol's first version; announced in `ready`.
pub const EXTENSIONS: [&str; 4] = ["client-message-id", "epoch", "get-messages-before", "roster-snapshot"];

/// What the message about a frame that cannot be read begins with. Deployed clients look for it.
pub const INVALID: &str = "invalid message format";

/// The longest name of a channel.
pub const MAX_CHANNEL: usize = 200;

/// A frame of a participant's.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame<'a> {
    Publish(Publish<'a>),
    /// Replaces what the roster says about this participant.
    UpdateMetadata {
        metadata: &'a str,
        reference: Option<i64>,
    },
    /// Asks for stored messages older than `before`, newest page first.
    GetMessagesBefore {
        before: Option<u64>,
        limit: Option<usize>,
        reference: Option<i64>,
        /// What the answer is called: who asks with `beforeId`, as some clients do, waits for `messages-before`.
        answer: &'static str,
    },
    /// Leaves in good order.
    Close {
        reference: Option<i64>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Publish<'a> {
    pub kind: Cow<'a, str>,
    /// JSON.
    pub payload: &'a str,
    /// Whether it is stored. Absent is yes.
    pub persist: bool,
    pub reference: Option<i64>,
    /// The same message sent again with the same id is stored once.
    pub client_message_id: Option<Cow<'a, str>>,
    pub attachments: Vec<AttachmentMeta>,
}

/// What a frame says about one of its attachments. Their bytes follow the JSON, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentMeta {
    /// Given by the server where the client gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub mime_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub size: u64,
}

/// Why a frame cannot be used, with the reference that the answer carries if it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrame {
    pub reference: Option<i64>,
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    persist: Option<bool>,
    #[serde(rename = "ref")]
    reference: Option<i64>,
    #[serde(borrow)]
    client_message_id: Option<Cow<'a, str>>,
    attachment_meta: Option<Vec<AttachmentMeta>>,
    before: Option<u64>,
    before_id: Option<u64>,
    limit: Option<usize>,
}

impl<'a> ClientFrame<'a> {
    pub fn decode(text: &'a str) -> Result<Self, BadFrame> {
        let fields: Fields<'a> = json::object(text)
            .map_err(|error| BadFrame { reference: reference_of(text), message: format!("{INVALID}: {error}") })?;
        let reference = fields.reference;
        let bad = |message: &str| BadFrame { reference, message: format!("{INVALID}: {message}") };
        match fields.action.as_deref() {
            Some("publish") => Ok(Self::Publish(Publish {
                kind: fields.kind.ok_or_else(|| bad("a publish needs a \"type\""))?,
                payload: fields.payload.map_or("null", RawValue::get),
                persist: fields.persist.unwrap_or(true),
                reference,
                client_message_id: fields.client_message_id,
                attachments: fields.attachment_meta.unwrap_or_default(),
            })),
            Some("update-metadata") => {
                let metadata = fields.payload.map(RawValue::get).filter(|text| text.starts_with('{'));
                let metadata = metadata.ok_or_else(|| bad("an update-metadata needs an object as its \"payload\""))?;
                Ok(Self::UpdateMetadata { metadata, reference })
            }
            Some("get-messages-before") => {
                let answer = if fields.before_id.is_some() { "messages-before" } else { "history" };
                let before = fields.before.or(fields.before_id);
                Ok(Self::GetMessagesBefore { before, limit: fields.limit, reference, answer })
            }
            Some("close") => Ok(Self::Close { reference }),
            Some(other) => {
                let other: String = other.escape_debug().take(60).collect();
                let known = "it is publish, update-metadata, get-messages-before or close";
                Err(BadFrame { reference, message: format!("unknown action \"{other}\"; {known}") })
            }
            None => Err(bad("a frame needs an \"action\"")),
        }
    }
}

/// The reference of a frame in which something else cannot be used, so that whoever sent it knows which one it was.
fn reference_of(text: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(rename = "ref")]
        reference: Option<i64>,
    }
    json::object::<Only>(text).ok()?.reference
}

/// Whether this can be a channel's name: 1 to [`MAX_CHANNEL`] bytes of visible text without spaces at the ends.
pub fn is_channel_name(name: &str) -> bool {
    (1..=MAX_CHANNEL).contains(&name.len()) && is_visible(name)
}

/// The form in which handles are compared: without case, and without a leading `@`.
pub fn handle_key(handle: &str) -> String {
    handle.strip_prefix('@').unwrap_or(handle).to_lowercase()
}

/// Whether a name is what it looks like: no spaces at its ends, and nothing in it that cannot be seen or turns the rest around.
pub fn is_visible(name: &str) -> bool {
    name.trim() == name && !name.contains(crate::is_unseen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_bad(text: &str, reference: Option<i64>) {
        assert_eq!(ClientFrame::decode(text).unwrap_err().reference, reference, "{text}");
    }

    #[test]
    fn frames_that_cannot_be_used_say_which_they_were() {
        check_bad("", None);
        check_bad("[]", None);
        check_bad("{", None);
        check_bad(r#"{"action":"publish","ref":7}"#, Some(7));
        check_bad(r#"{"action":"dance","ref":7}"#, Some(7));
        check_bad(r#"{"ref":7}"#, Some(7));
        check_bad(r#"{"action":"publish","type":5,"ref":7}"#, Some(7));
        check_bad(r#"{"action":"update-metadata","payload":[],"ref":7}"#, Some(7));
        check_bad(r#"{"action":"publish","type":"a","type":"b","ref":7}"#, Some(7));
    }

    #[test]
    fn a_publish_is_stored_unless_it_says_otherwise() {
        let ClientFrame::Publish(publish) = ClientFrame::decode(r#"{"action":"publish","type":"m"}"#).unwrap() else {
            panic!()
        };
        assert!(publish.persist);
        assert_eq!(publish.payload, "null");
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in ".{0,200}", json in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,80}") {
            let _ = ClientFrame::decode(&text);
            let _ = ClientFrame::decode(&json);
            let _ = ClientFrame::decode(&format!("{{\"action\":\"publish\",\"type\":\"a\",\"payload\":{json}}}"));
        }
    }

    #[test]
    fn handles_are_compared_without_case_and_at() {
        for same in ["helper", "@helper", "HELPER", "@Helper"] {
            assert_eq!(handle_key(same), "helper");
        }
        assert_ne!(handle_key("help@er"), handle_key("helper"));
    }

    #[test]
    fn names() {
        assert!(is_channel_name("team/röom 1"));
        for bad in ["", " a", "a\n", "a\u{202e}b", "a\u{3164}", &"x".repeat(201)] {
            assert!(!is_channel_name(bad), "{bad:?}");
        }
    }
}
