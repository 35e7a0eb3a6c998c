//! Decoders for the frames of the server.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::AttachmentMeta;
use crate::json;

/// A frame that the server sends.
#[derive(Debug, Clone)]
pub enum ServerFrame<'a> {
    Message(Delivered<'a>),
    /// All missed messages have been sent.
    Ready(Welcome<'a>),
    /// The server rejected a frame.
    Refusal {
        error: Cow<'a, str>,
        /// Absent if the server has no codes for rejections.
        code: Option<Cow<'a, str>>,
        reference: Option<i64>,
    },
    /// A page of stored messages, oldest first.
    History {
        messages: Vec<Delivered<'a>>,
        more: bool,
        reference: Option<i64>,
    },
    /// A frame that this version does not know. It is ignored.
    Unknown,
}

/// A message as one participant receives it.
#[derive(Debug, Clone)]
pub struct Delivered<'a> {
    pub delivery: Delivery,
    /// Absent if the message is not stored.
    pub id: Option<u64>,
    pub kind: Cow<'a, str>,
    /// JSON.
    pub payload: &'a str,
    pub sender: Cow<'a, str>,
    pub at_ms: i64,
    /// JSON.
    pub sender_metadata: Option<&'a str>,
    pub attachments: Vec<AttachmentMeta>,
    /// The reference of the frame that this message acknowledges, if the receiver sent it.
    pub reference: Option<i64>,
    /// The message was already stored: this frame is an acknowledgement, not a new message.
    pub duplicate: bool,
}

/// The reason why a participant receives a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The message was stored just now.
    Persisted,
    /// The message was sent just now and is not stored.
    Ephemeral,
    /// The message was stored before the participant connected.
    Replay,
}

/// The data of a server's `ready` frame. A server without extensions sends none.
#[derive(Debug, Clone, Default)]
pub struct Welcome<'a> {
    pub participant: Option<Cow<'a, str>>,
    pub epoch: Option<Cow<'a, str>>,
    pub last_id: Option<u64>,
    pub recovered: Option<bool>,
    /// JSON: the participants that are present, by id.
    pub roster: Option<&'a str>,
    /// The context that the channel belongs to, if it has one.
    pub context: Option<Cow<'a, str>>,
    /// JSON: the configuration with which the channel was created.
    pub config: Option<&'a str>,
    pub extensions: Vec<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    id: Option<u64>,
    #[serde(borrow, rename = "type")]
    message_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    sender_id: Option<Cow<'a, str>>,
    /// Some servers send timestamps with fractions of a millisecond.
    ts: Option<f64>,
    #[serde(borrow)]
    sender_metadata: Option<&'a RawValue>,
    attachment_meta: Option<Vec<AttachmentMeta>>,
    #[serde(rename = "ref")]
    reference: Option<i64>,
    duplicate: Option<bool>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    participant_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    epoch: Option<Cow<'a, str>>,
    last_id: Option<u64>,
    recovered: Option<bool>,
    #[serde(borrow)]
    roster: Option<&'a RawValue>,
    #[serde(borrow)]
    context_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    channel_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    extensions: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
    has_more: Option<bool>,
}

impl<'a> ServerFrame<'a> {
    /// Reads a frame. The error describes why the frame is invalid.
    pub fn decode(text: &'a str) -> Result<Self, String> {
        let fields: Fields<'a> = json::object(text).map_err(|error| error.to_string())?;
        match fields.kind.as_deref() {
            Some("ready") => Ok(Self::Ready(Welcome {
                participant: fields.participant_id,
                epoch: fields.epoch,
                last_id: fields.last_id,
                recovered: fields.recovered,
                roster: fields.roster.map(RawValue::get),
                context: fields.context_id,
                config: fields.channel_config.map(RawValue::get),
                extensions: fields.extensions.unwrap_or_default(),
            })),
            Some("error") => Ok(Self::Refusal {
                error: fields.error.unwrap_or(Cow::Borrowed("no reason given")),
                code: fields.code,
                reference: fields.reference,
            }),
            Some("history") => {
                let messages = fields.messages.unwrap_or_default();
                let read = |message: &'a RawValue| match Self::decode(message.get())? {
                    Self::Message(message) => Ok(message),
                    _ => {
                        Err("a page of history contains something that is not a message".to_owned())
                    }
                };
                Ok(Self::History {
                    messages: messages.into_iter().map(read).collect::<Result<_, _>>()?,
                    more: fields.has_more.unwrap_or(false),
                    reference: fields.reference,
                })
            }
            // This is the acknowledgement of a close, which carries nothing else.
            Some("persisted") if fields.message_type.is_none() && fields.reference.is_some() => {
                Ok(Self::Unknown)
            }
            Some("persisted") => delivered(fields, Delivery::Persisted),
            Some("ephemeral") => delivered(fields, Delivery::Ephemeral),
            Some("replay") => delivered(fields, Delivery::Replay),
            Some(_) => Ok(Self::Unknown),
            None => Err("a frame needs a \"kind\"".into()),
        }
    }
}

fn delivered(fields: Fields<'_>, delivery: Delivery) -> Result<ServerFrame<'_>, String> {
    Ok(ServerFrame::Message(Delivered {
        delivery,
        id: fields.id,
        kind: fields.message_type.ok_or("a message needs a \"type\"")?,
        payload: fields.payload.map_or("null", RawValue::get),
        sender: fields.sender_id.ok_or("a message needs a \"senderId\"")?,
        at_ms: fields.ts.unwrap_or_default() as i64,
        sender_metadata: fields.sender_metadata.map(RawValue::get),
        attachments: fields.attachment_meta.unwrap_or_default(),
        reference: fields.reference,
        duplicate: fields.duplicate.unwrap_or(false),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{
        Envelope, Ready, encode_body, encode_closed, encode_error, encode_history, encode_message,
        encode_ready,
    };

    fn body() -> String {
        encode_body(&Envelope {
            kind: "mess\"age",
            payload: r#"{"id":"x"}"#,
            sender: "ann",
            at_ms: 5,
            sender_metadata: r#"{"a":1}"#,
            attachments: &[],
        })
    }

    #[test]
    fn the_acknowledgement_of_a_close_is_no_message() {
        assert!(matches!(ServerFrame::decode(&encode_closed(3)), Ok(ServerFrame::Unknown)));
        assert!(ServerFrame::decode(r#"{"kind":"persisted"}"#).is_err());
    }

    #[test]
    fn what_a_server_writes_is_read() {
        let text = encode_message("persisted", Some(9), &body(), Some(4), true);
        let ServerFrame::Message(message) = ServerFrame::decode(&text).unwrap() else { panic!() };
        assert_eq!(
            (message.delivery, message.id, message.at_ms),
            (Delivery::Persisted, Some(9), 5)
        );
        assert_eq!(
            (&*message.kind, message.payload, &*message.sender),
            ("mess\"age", r#"{"id":"x"}"#, "ann")
        );
        assert_eq!((message.reference, message.duplicate), (Some(4), true));
        assert_eq!(message.sender_metadata, Some(r#"{"a":1}"#));

        let page =
            [RawValue::from_string(encode_message("replay", Some(1), &body(), None, false))
                .unwrap()];
        let text = encode_history("history", &page, true, Some(3));
        let ServerFrame::History { messages, more: true, reference: Some(3) } =
            ServerFrame::decode(&text).unwrap()
        else {
            panic!()
        };
        assert_eq!(messages[0].id, Some(1));

        let text = encode_error("no", "conflict", Some(2));
        assert!(matches!(
            ServerFrame::decode(&text).unwrap(),
            ServerFrame::Refusal { reference: Some(2), .. }
        ));
        let ready = Ready {
            participant: "p",
            epoch: "e",
            last_id: 3,
            recovered: Some(false),
            roster: Some("{}"),
            context: Some("c\"1"),
            config: Some(r#"{"a":1}"#),
        };
        let text = encode_ready(&ready);
        let ServerFrame::Ready(welcome) = ServerFrame::decode(&text).unwrap() else { panic!() };
        assert_eq!(
            (welcome.last_id, welcome.recovered, welcome.roster),
            (Some(3), Some(false), Some("{}"))
        );
        assert_eq!(
            (welcome.context.as_deref(), welcome.config),
            (Some("c\"1"), Some(r#"{"a":1}"#))
        );
        assert!(welcome.extensions.iter().any(|extension| extension == "epoch"));
    }

    #[test]
    fn a_server_may_say_little() {
        let ServerFrame::Ready(welcome) = ServerFrame::decode(r#"{"kind":"ready"}"#).unwrap()
        else {
            panic!()
        };
        assert!(welcome.extensions.is_empty() && welcome.epoch.is_none());
        assert!(matches!(ServerFrame::decode(r#"{"kind":"news"}"#).unwrap(), ServerFrame::Unknown));
        for bad in ["", "[]", "{", "{}", r#"{"kind":"replay"}"#, r#"{"kind":"replay","type":"a"}"#]
        {
            assert!(ServerFrame::decode(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in ".{0,200}", json in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,80}") {
            let _ = ServerFrame::decode(&text);
            let _ = ServerFrame::decode(&json);
        }
    }
}
