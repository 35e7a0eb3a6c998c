//! The stored messages of a channel.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use sa_core::store::{Bounds, Entry, StoreError};
use sa_protocol::channel::encode_message;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Channel;
use crate::attachments;

/// The maximum number of messages on a page.
const MAX_PAGE: usize = 500;
/// A page ends when it reaches this size.
pub(crate) const MAX_PAGE_BYTES: usize = 4 << 20;

/// A stored message.
#[derive(Debug, Clone)]
pub struct Stored {
    pub id: u64,
    /// JSON: the envelope without the fields that differ between readers.
    pub(crate) body: Bytes,
    /// The file with its attachments.
    pub(crate) file: Option<Arc<str>>,
}

/// Some stored messages, oldest first.
#[derive(Debug, Clone)]
pub struct Page {
    pub messages: Vec<Box<RawValue>>,
    /// Whether there are older messages.
    pub more: bool,
}

impl Stored {
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let id = entry.seq;
        if entry.body.first() != Some(&b'@') {
            return Some(Self { id, body: entry.body.clone(), file: None });
        }
        let end = entry.body.iter().position(|byte| *byte == b'\n')?;
        let file = std::str::from_utf8(&entry.body[1..end]).ok()?.into();
        Some(Self { id, body: entry.body.slice(end + 1..), file: Some(file) })
    }

    /// Returns the message as JSON.
    pub(crate) fn json(&self) -> Option<String> {
        let body = std::str::from_utf8(&self.body).ok()?;
        Some(encode_message("replay", Some(self.id), body, None, false))
    }

    /// Returns the participant of a presence message with its metadata, or with `None` if it
    /// left.
    pub(crate) fn presence_of(&self) -> Option<(String, Option<String>)> {
        #[derive(Deserialize)]
        struct Payload<'a> {
            action: String,
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            sender_id: String,
            #[serde(borrow)]
            payload: Payload<'a>,
        }
        // A cheap check first: most messages have another type.
        self.body.starts_with(b"{\"type\":\"presence\"").then_some(())?;
        let Shape { sender_id, payload } = serde_json::from_slice(&self.body).ok()?;
        Some((sender_id, (payload.action != "leave").then(|| payload.metadata.get().to_owned())))
    }

    /// Returns a presence message as JSON without its id, or `None` for another type of message.
    pub(crate) fn presence(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Shape<'a> {
            #[serde(rename = "type", borrow)]
            kind: Cow<'a, str>,
        }
        let body = std::str::from_utf8(&self.body).ok()?;
        let Shape { kind } = serde_json::from_str(body).ok()?;
        (kind == "presence").then(|| encode_message("replay", None, body, None, false))
    }
}

impl Channel {
    /// Returns the first and the last stored message.
    pub async fn bounds(&self) -> Result<Bounds, StoreError> {
        self.hub.log.bounds(&self.stream).await
    }

    /// Returns the messages before `before`, or the latest ones.
    pub async fn page(&self, before: Option<u64>, limit: usize) -> Result<Page, StoreError> {
        let entries = self
            .hub
            .log
            .read_back(&self.stream, before.unwrap_or(u64::MAX), limit.clamp(1, MAX_PAGE))
            .await?;
        let mut messages: Vec<Box<RawValue>> = Vec::with_capacity(entries.len());
        let (mut bytes, mut oldest) = (0, before.unwrap_or(0));
        for entry in &entries {
            bytes += entry.body.len();
            if bytes > MAX_PAGE_BYTES && !messages.is_empty() {
                break;
            }
            oldest = entry.seq;
            let json = Stored::of(entry).and_then(|stored| stored.json());
            messages.extend(json.and_then(|json| RawValue::from_string(json).ok()));
        }
        messages.reverse();
        let first = self.bounds().await?.first;
        Ok(Page { messages, more: !entries.is_empty() && oldest > first })
    }

    /// Returns a receiver with the id of the last stored message.
    pub fn follow(&self) -> tokio::sync::watch::Receiver<u64> {
        self.hub.log.follow(&self.stream)
    }

    /// Returns stored messages after `after` with their ids, oldest first.
    pub async fn since(&self, after: u64) -> Result<Vec<(u64, String)>, StoreError> {
        let stored = self.after(after, MAX_PAGE).await?;
        Ok(stored.iter().filter_map(|stored| Some((stored.id, stored.json()?))).collect())
    }

    /// Returns stored messages after `after`, oldest first.
    pub(crate) async fn after(&self, after: u64, limit: usize) -> Result<Vec<Stored>, StoreError> {
        let entries = self.hub.log.read(&self.stream, after, limit).await?;
        Ok(entries.iter().filter_map(Stored::of).collect())
    }

    /// Returns the bytes of a message's attachments.
    pub(crate) async fn attached(&self, stored: &Stored) -> Option<Bytes> {
        let file = stored.file.as_ref()?;
        attachments::read(&self.hub.options.attachments, &self.epoch, file).await.ok()
    }

    /// Returns the MIME type and the bytes of one attachment.
    pub async fn attachment(
        &self,
        message: u64,
        attachment: &str,
    ) -> Result<Option<(String, Bytes)>, StoreError> {
        let Some(stored) = self
            .after(message.saturating_sub(1), 1)
            .await?
            .into_iter()
            .find(|stored| stored.id == message)
        else {
            return Ok(None);
        };
        let Some(bytes) = self.attached(&stored).await else { return Ok(None) };
        let mut at = 0_usize;
        for meta in attachments::described(&stored.body) {
            let end = at.saturating_add(meta.size as usize);
            if meta.id.as_deref() == Some(attachment) {
                return Ok((end <= bytes.len()).then(|| (meta.mime_type, bytes.slice(at..end))));
            }
            at = end;
        }
        Ok(None)
    }
}

/// Returns the sender of a stored message.
pub(crate) fn sender_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape<'a> {
        #[serde(borrow)]
        sender_id: Cow<'a, str>,
    }
    let json = match body.first() {
        Some(b'@') => &body[body.iter().position(|byte| *byte == b'\n')? + 1..],
        _ => body,
    };
    serde_json::from_slice::<Shape<'_>>(json).ok().map(|shape| shape.sender_id.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// Whatever a stored entry contains, it is read as JSON or as nothing.
        #[test]
        fn no_stored_entry_breaks_its_readers(
            noise in sa_hostile::noise(), file in prop::option::of("[a-z0-9-]{0,8}\n?"), nearly in sa_hostile::nearly(json!({
                "type": "presence", "senderId": "ann", "payload": {}, "attachmentMeta": [{ "id": "a", "mimeType": "a/b", "size": 3 }],
            })),
        ) {
            for body in [noise, nearly.into_bytes()] {
                let body = match &file {
                    Some(file) => [b"@", file.as_bytes(), &body].concat(),
                    None => body,
                };
                let _ = (sender_of(&body), attachments::described(&body));
                let entry = Entry { seq: 7, at_ms: 0, body: body.clone().into() };
                if let Some(stored) = Stored::of(&entry) {
                    prop_assert!(body.ends_with(&stored.body));
                    prop_assert!(stored.file.is_none_or(|file| !file.contains('\n')));
                }
            }
        }

        #[test]
        fn a_stored_message_is_read_as_it_was_written(sender in ".{0,12}", file in prop::option::of("[a-z0-9-]{1,8}")) {
            let written = json!({ "type": "presence", "senderId": sender, "payload": {} }).to_string();
            let body = file.as_ref().map_or_else(|| written.clone(), |file| format!("@{file}\n{written}"));
            prop_assert_eq!(sender_of(body.as_bytes()), Some(sender));
            let stored = Stored::of(&Entry { seq: 7, at_ms: 0, body: body.into() }).unwrap();
            prop_assert_eq!(stored.file.as_deref(), file.as_deref());
            let shown: serde_json::Value = serde_json::from_str(&stored.json().unwrap()).unwrap();
            prop_assert_eq!(&shown["id"], &json!(7));
            prop_assert!(stored.presence().is_some());
        }
    }
}
