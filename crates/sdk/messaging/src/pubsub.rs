//! The channel without the protocol on top: messages with any type and payload.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use sa_protocol::channel::{Delivered, Delivery};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::queue::{Item, Reader};
use crate::shared::{Command, Draft, Shared};
use crate::{Attachment, Error, attachment};

/// A message of any type, as received.
#[derive(Debug, Clone, PartialEq)]
pub struct RawMessage {
    pub delivery: Delivery,
    /// The position in the channel's log; absent if the message is not stored.
    pub id: Option<u64>,
    /// The type.
    pub kind: String,
    /// JSON.
    pub payload: Arc<str>,
    pub sender_id: String,
    /// The sender's metadata at the time.
    pub sender_metadata: Map<String, Value>,
    /// Milliseconds since 1970, by the server's clock.
    pub timestamp_ms: i64,
    /// The attachments. In a page of history they have no bytes.
    pub attachments: Vec<Attachment>,
}

/// The number of messages that were dropped, because the stream was not read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} messages were dropped because they were not read in time; read faster, or increase event_buffer"
)]
pub struct Missed(pub u64);

pub(crate) type RawItem = Result<RawMessage, Missed>;

/// A page of stored messages, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HistoryPage {
    pub messages: Vec<RawMessage>,
    /// Whether older messages exist.
    pub more: bool,
}

/// Options of a published message.
#[derive(Debug, Clone)]
pub struct PublishOptions {
    /// Whether the message is stored. True by default.
    pub persist: bool,
    pub attachments: Vec<Attachment>,
    /// An id that deduplicates retries: a message sent again with the same id is stored once, even
    /// by another client of this participant.
    pub client_message_id: Option<String>,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self { persist: true, attachments: Vec::new(), client_message_id: None }
    }
}

/// The channel underneath a [`Client`](crate::Client).
#[derive(Clone, Copy)]
pub struct PubSub<'a> {
    pub(crate) shared: &'a Arc<Shared>,
}

impl PubSub<'_> {
    /// Publishes a message. Returns its id once it is stored, or `None` if it is not to be stored.
    pub async fn publish(
        &self,
        kind: &str,
        payload: impl Serialize,
        options: PublishOptions,
    ) -> Result<Option<u64>, Error> {
        let payload = serde_json::to_string(&payload)
            .map_err(|error| Error::sent("the payload", error.to_string()))?;
        let mut draft = Draft {
            attachments: options.attachments,
            ..Draft::new(kind, payload, options.persist)
        };
        if let Some(id) = options.client_message_id {
            draft.client_message_id = id;
        }
        self.shared.publish(draft).await
    }

    /// Returns a stream of all messages from now on: of any type, stored or not, including this
    /// participant's own. Messages that were sent while the connection was lost have
    /// [`Delivery::Replay`].
    pub fn messages(&self) -> RawMessages {
        RawMessages { reader: self.shared.raw.read([], |_| true) }
    }

    /// Returns stored messages before this one, or the latest. Requires a server with the extension
    /// `get-messages-before`.
    pub async fn messages_before(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<HistoryPage, Error> {
        if !self
            .shared
            .identity()
            .extensions
            .iter()
            .any(|extension| extension == "get-messages-before")
        {
            let why = "the server does not support it; connect with since_id instead";
            return Err(Error::sent("a request for history", why));
        }
        self.shared.ask(|done| Command::History { before, limit, done }).await
    }
}

impl RawMessage {
    pub(crate) fn new(message: Delivered<'_>, bytes: &Bytes) -> Result<Self, String> {
        let attachments = attachment::split(message.attachments, bytes)?;
        let metadata = message.sender_metadata.and_then(|json| serde_json::from_str(json).ok());
        Ok(Self {
            delivery: message.delivery,
            id: message.id,
            kind: message.kind.into_owned(),
            payload: message.payload.into(),
            sender_id: message.sender.into_owned(),
            sender_metadata: metadata.unwrap_or_default(),
            timestamp_ms: message.at_ms,
            attachments,
        })
    }

    /// Converts a message of a page of history. Its attachments have metadata but no bytes.
    pub(crate) fn without_bytes(mut message: Delivered<'_>) -> Self {
        let described = std::mem::take(&mut message.attachments);
        let attachments = described.into_iter().map(|meta| Attachment {
            id: meta.id.unwrap_or_default(),
            mime_type: meta.mime_type,
            name: meta.name,
            data: Bytes::new(),
        });
        let attachments = attachments.collect();
        let mut raw = Self::new(message, &Bytes::new())
            .unwrap_or_else(|_| unreachable!("it has no attachments"));
        raw.attachments = attachments;
        raw
    }

    /// Parses the payload as a type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let what =
            format!("a {} of \"{}\"", self.kind.escape_debug(), self.sender_id.escape_debug());
        serde_json::from_str(&self.payload)
            .map_err(|error| Error::received(&what, error.to_string()))
    }

    /// Returns the id in the payload, if messages of this type have one that is unique in the
    /// channel.
    pub(crate) fn subject(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Ids {
            id: Option<String>,
            call_id: Option<String>,
        }
        let ids = || sa_protocol::object::<Ids>(&self.payload).ok();
        match self.kind.as_str() {
            "message" => ids()?.id,
            "method-call" => ids()?.call_id,
            _ => None,
        }
    }
}

impl Item for RawItem {
    fn weight(&self) -> usize {
        let message = self.as_ref().ok();
        256 + message.map_or(0, |message| {
            message.payload.len()
                + message.attachments.iter().map(|attachment| attachment.data.len()).sum::<usize>()
        })
    }

    fn lagged(missed: u64) -> Self {
        Err(Missed(missed))
    }
}

/// The stream that [`PubSub::messages`] returns.
pub struct RawMessages {
    reader: Reader<RawItem>,
}

impl Stream for RawMessages {
    type Item = Result<RawMessage, Missed>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl fmt::Debug for PubSub<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubSub").finish_non_exhaustive()
    }
}

impl fmt::Debug for RawMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMessages").finish_non_exhaustive()
    }
}
