//! Tracks presence so that a crash leaves no stale presence.
//!
//! Each arrival is noted before it is stored in its channel, and each departure after. An arrival
//! without a departure is a participant that was present when the gateway ended. At the next
//! start, its departure is stored in the channel.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sa_core::clock;
use sa_core::store::{Log, NewEntry, Retention, StoreError};
use sa_protocol::channel::{Envelope, encode_body};
use sa_text::json::ObjectWriter;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::stream;

pub(crate) const STREAM: &str = "channels:present";
const PAGE: usize = 1_000;
/// The list of notes is compacted at this length.
const LONG: u64 = 50_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// Distinguishes the presences of one participant.
    n: String,
    channel: String,
    participant: String,
    here: bool,
}

/// Identifies one presence of a participant. Its notes are created on demand, so that they take
/// no memory for each present participant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presenting(Uuid);

impl Presenting {
    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the note for an arrival or a departure.
    pub(crate) fn note(self, channel: &str, participant: &str, here: bool) -> Bytes {
        let n = self.0.simple().to_string();
        let note = Note { n, channel: channel.into(), participant: participant.into(), here };
        serde_json::to_vec(&note).unwrap_or_default().into()
    }

    /// Returns the deduplication key, so that the departure is stored only once.
    pub(crate) fn departure_key(self) -> Arc<str> {
        departure_key(&self.0.simple().to_string())
    }
}

fn departure_key(n: &str) -> Arc<str> {
    format!("leave:{n}").into()
}

pub(crate) fn is_arrival(note: &[u8]) -> bool {
    note.ends_with(b"\"here\":true}")
}

/// Stores a departure for each participant that was present when the gateway ended, and returns
/// their channels.
pub(crate) async fn clear_stale_presence(
    log: &Arc<dyn Log>,
) -> Result<HashSet<String>, StoreError> {
    let mut here: BTreeMap<String, Note> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = log.read(STREAM, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for note in page.iter().filter_map(|entry| serde_json::from_slice::<Note>(&entry.body).ok())
        {
            if note.here {
                here.insert(note.n.clone(), note);
            } else {
                here.remove(&note.n);
            }
        }
    }
    let leave = payload("leave", "{}", Some("disconnect"));
    let leaves = here.values().map(|note| {
        let envelope = Envelope {
            kind: "presence",
            payload: &leave,
            sender: &note.participant,
            at_ms: clock::now_ms(),
            sender_metadata: "{}",
            attachments: &[],
        };
        // The departure may already be stored, if the gateway ended just after that.
        let (stream, key) = (stream(&note.channel).into(), Some(departure_key(&note.n)));
        log.append(NewEntry { stream, key, body: encode_body(&envelope).into() })
    });
    try_join_all(leaves).await?;
    log.trim(STREAM, Retention { entries: Some(0), ..Retention::default() }).await?;
    Ok(here.into_values().map(|note| note.channel).collect())
}

/// Rewrites the notes of the present participants and deletes the old ones, once there are many.
/// `here` is called after the end of the list was read, so that no newer note is deleted.
pub(crate) async fn compact(
    log: &Arc<dyn Log>,
    here: impl FnOnce() -> Vec<Bytes>,
) -> Result<(), StoreError> {
    let bounds = log.bounds(STREAM).await?;
    if bounds.last.saturating_sub(bounds.first) < LONG {
        return Ok(());
    }
    let here = here();
    try_join_all(
        here.into_iter()
            .map(|body| log.append(NewEntry { stream: STREAM.into(), key: None, body })),
    )
    .await?;
    let now = log.bounds(STREAM).await?.last;
    log.trim(STREAM, Retention { entries: Some(now - bounds.last), ..Retention::default() })
        .await
        .map(drop)
}

/// Returns the payload of a presence message. `metadata` is JSON.
pub(crate) fn payload(action: &str, metadata: &str, reason: Option<&str>) -> String {
    ObjectWriter::with_capacity(metadata.len() + 60)
        .text("action", action)
        .raw_text("metadata", metadata)
        .opt_text("leaveReason", reason)
        .end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_is_told_from_a_departure() {
        let note = |here| Presenting::new().note("\"here\":true}", "x", here);
        assert!(is_arrival(&note(true)));
        assert!(!is_arrival(&note(false)));
    }
}
