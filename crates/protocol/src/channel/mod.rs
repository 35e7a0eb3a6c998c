//! The channel protocol: the frames between participants and the server.
//!
//! A frame of the client is a JSON object with an `action`; a frame of the server has a `kind`.
//! Payloads and metadata are passed through as unparsed text. A frame with attachments is binary:
//! see [`binary`].

pub mod binary;
mod client;
mod encode;
mod server;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use client::{
    encode_close, encode_get_messages_before, encode_publish, encode_update_metadata,
};
pub use encode::{
    Envelope, Ready, encode_body, encode_closed, encode_error, encode_history, encode_message,
    encode_ready,
};
pub use server::{Delivered, Delivery, ServerFrame, Welcome};

use crate::json;

/// Closed because the token is missing, unknown, or not valid for this channel. Final.
pub const CLOSE_UNAUTHORIZED: u16 = 4001;
/// Closed because the channel is missing or its name is invalid. Final.
pub const CLOSE_CHANNEL_REQUIRED: u16 = 4002;

/// Closed because the query's contextId or channelConfig is invalid. Final.
pub const CLOSE_INVALID_CONTEXT: u16 = 4005;
/// Closed because the channel belongs to another context. Final.
pub const CLOSE_CONTEXT_MISMATCH: u16 = 4006;

/// The extensions of the protocol's first version that this server supports, as announced in
/// `ready`.
pub const EXTENSIONS: [&str; 4] =
    ["client-message-id", "epoch", "get-messages-before", "roster-snapshot"];

/// The first words of the error message for a frame that cannot be read. Deployed clients search
/// for this text.
pub const INVALID: &str = "invalid message format";

/// The maximum length of a channel's name, in bytes.
pub const MAX_CHANNEL: usize = 200;

/// A frame that a participant sends.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame<'a> {
    Publish(Publish<'a>),
    /// Replaces this participant's metadata in the roster.
    UpdateMetadata {
        metadata: &'a str,
        reference: Option<i64>,
    },
    /// Requests stored messages older than `before`, newest page first.
    GetMessagesBefore {
        before: Option<u64>,
        limit: Option<usize>,
        reference: Option<i64>,
        /// The kind of the response. Clients that send `beforeId` expect `messages-before`.
        answer: &'static str,
    },
    /// Leaves the channel with a clean close.
    Close {
        reference: Option<i64>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Publish<'a> {
    pub kind: Cow<'a, str>,
    /// JSON.
    pub payload: &'a str,
    /// Whether the message is stored. It is when the field is absent.
    pub persist: bool,
    pub reference: Option<i64>,
    /// An id that deduplicates retries: a message sent again with the same id is stored once.
    pub client_message_id: Option<Cow<'a, str>>,
    pub attachments: Vec<AttachmentMeta>,
}

/// The metadata of one attachment in a frame. The bytes of all attachments follow the JSON, in this
/// order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentMeta {
    /// Assigned by the server if the client sent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub mime_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub size: u64,
}

/// The reason why a frame is invalid, with the reference for the error response if it could be
/// read.
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
        let fields: Fields<'a> = json::object(text).map_err(|error| BadFrame {
            reference: reference_of(text),
            message: format!("{INVALID}: {error}"),
        })?;
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
                let metadata =
                    fields.payload.map(RawValue::get).filter(|text| text.starts_with('{'));
                let metadata = metadata
                    .ok_or_else(|| bad("an update-metadata needs an object as its \"payload\""))?;
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
                let known = "use publish, update-metadata, get-messages-before or close";
                Err(BadFrame { reference, message: format!("unknown action \"{other}\"; {known}") })
            }
            None => Err(bad("a frame needs an \"action\"")),
        }
    }
}

/// Returns the reference of an invalid frame, so that the sender knows which frame the error is
/// about.
fn reference_of(text: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(rename = "ref")]
        reference: Option<i64>,
    }
    json::object::<Only>(text).ok()?.reference
}

/// Returns whether this is a valid channel name: 1 to [`MAX_CHANNEL`] bytes of visible text without
/// spaces at either end.
pub fn is_channel_name(name: &str) -> bool {
    (1..=MAX_CHANNEL).contains(&name.len()) && is_visible(name)
}

/// Returns the form in which handles are compared: in lowercase, and without a leading `@`.
pub fn handle_key(handle: &str) -> String {
    handle.strip_prefix('@').unwrap_or(handle).to_lowercase()
}

/// Returns whether a name is displayed exactly as it is stored: without spaces at either end, and
/// without invisible or bidirectional control characters.
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
        let ClientFrame::Publish(publish) =
            ClientFrame::decode(r#"{"action":"publish","type":"m"}"#).unwrap()
        else {
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
