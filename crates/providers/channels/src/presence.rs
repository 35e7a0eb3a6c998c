//! Who is there, kept so that a crash leaves no ghosts.
//!
//! Every arrival is noted before it is stored in its channel, and every departure after. An arrival without its
//! departure is somebody who was there when the gateway ended: at the next start the channel is told that they left.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sa_core::clock;
use sa_core::store::{Log, NewEntry, Retention, StoreError};
use sa_protocol::channel::{Envelope, encode_body};
use sa_protocol::push_string;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::stream;

pub(crate) const STREAM: &str = "channels:present";
const PAGE: usize = 1_000;
/// The list of notes is written anew when it has become this long.
const LONG: u64 = 50_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// Tells the presences of one participant apart.
    n: String,
    channel: String,
    participant: String,
    here: bool,
}

/// Tells the presences of one participant apart. The notes are made of it when they are written, for everybody who is
/// there would have them else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presenting(Uuid);

impl Presenting {
    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// What is noted of a participant that comes, or of one that goes.
    pub(crate) fn note(self, channel: &str, participant: &str, here: bool) -> Bytes {
        let n = self.0.simple().to_string();
        let note = Note { n, channel: channel.into(), participant: participant.into(), here };
        serde_json::to_vec(&note).unwrap_or_default().into()
    }

    /// Makes sure that the departure is stored once.
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

/// Stores a departure for everybody who was there when the gateway ended, and says in which channels that was.
pub(crate) async fn lay_ghosts(log: &Arc<dyn Log>) -> Result<HashSet<String>, StoreError> {
    let mut here: BTreeMap<String, Note> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = log.read(STREAM, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for note in page.iter().filter_map(|entry| serde_json::from_slice::<Note>(&entry.body).ok()) {
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
        // Stored already if the gateway ended just after it was.
        let (stream, key) = (stream(&note.channel).into(), Some(departure_key(&note.n)));
        log.append(NewEntry { stream, key, body: encode_body(&envelope).into() })
    });
    try_join_all(leaves).await?;
    log.trim(STREAM, Retention { entries: Some(0), ..Retention::default() }).await?;
    Ok(here.into_values().map(|note| note.channel).collect())
}

/// Writes the notes of those who are here anew and deletes the old ones, once there are many.
/// `here` is asked after the end of the list has been noted, so that nobody is deleted who came meanwhile.
pub(crate) async fn compact(log: &Arc<dyn Log>, here: impl FnOnce() -> Vec<Bytes>) -> Result<(), StoreError> {
    let bounds = log.bounds(STREAM).await?;
    if bounds.last.saturating_sub(bounds.first) < LONG {
        return Ok(());
    }
    let here = here();
    try_join_all(here.into_iter().map(|body| log.append(NewEntry { stream: STREAM.into(), key: None, body }))).await?;
    let now = log.bounds(STREAM).await?.last;
    log.trim(STREAM, Retention { entries: Some(now - bounds.last), ..Retention::default() }).await.map(drop)
}

/// The payload of a presence message. `metadata` is JSON.
pub(crate) fn payload(action: &str, metadata: &str, reason: Option<&str>) -> String {
    let mut out = format!("{{\"action\":\"{action}\",\"metadata\":{metadata}");
    if let Some(reason) = reason {
        out.push_str(",\"leaveReason\":");
        push_string(&mut out, reason);
    }
    out.push('}');
    out
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
