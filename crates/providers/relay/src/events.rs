//! What happens in a session: said to its caller at once, and kept for whoever asks later.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sa_core::store::{Log, NewEntry, Retention, StoreError, Trimmed};
use sa_core::{Notice, NoticeBody, Notices, RawJson, SessionNews, Trimmer, clock};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Sessions share streams: a store has room for a million streams in all its life, and sessions come and go.
const STREAMS: u64 = 1_024;
/// Entries that are looked at in one go.
const PAGE: usize = 256;

/// An event as it is kept.
#[derive(Debug, Clone)]
pub struct Event {
    /// Grows from event to event; there are gaps.
    pub id: u64,
    pub kind: String,
    /// The whole event, its id included, as JSON.
    pub json: String,
}

#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) session: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) notices: Notices,
    log: LogHandle,
    stream: Arc<str>,
}

struct LogHandle(Arc<dyn Log>);

impl std::fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

#[derive(Deserialize)]
struct Peek {
    session_id: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Events {
    pub(crate) fn new(session: &Arc<str>, owner: &Arc<str>, notices: &Notices, log: &Arc<dyn Log>) -> Self {
        Self {
            session: Arc::clone(session),
            owner: Arc::clone(owner),
            notices: notices.clone(),
            log: LogHandle(Arc::clone(log)),
            stream: stream_of(session).into(),
        }
    }

    /// Says and keeps an event: these fields, the kind, the session, the time.
    pub(crate) fn say(&self, kind: &str, fields: Value) {
        let event = self.event(kind, fields);
        self.keep(&event);
        self.tell(event);
    }

    /// The same, and gives back its id once it is on disk, with all that was said before it.
    pub(crate) async fn write(&self, kind: &str, fields: Value) -> Result<u64, StoreError> {
        let event = self.event(kind, fields);
        let body = Bytes::copy_from_slice(event.as_str().as_bytes());
        let written = self.log.0.append(NewEntry { stream: Arc::clone(&self.stream), key: None, body }).await?;
        self.tell(event);
        Ok(written.seq)
    }

    fn event(&self, kind: &str, fields: Value) -> RawJson {
        let mut event = json!({ "type": kind, "session_id": &*self.session, "at_ms": clock::now_ms() });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        RawJson::of(&event)
    }

    fn tell(&self, event: RawJson) {
        self.notices.send(Notice {
            to: Some(Arc::clone(&self.owner)),
            body: NoticeBody::Session { session: Arc::clone(&self.session), kind: SessionNews::Event, data: event },
        });
    }

    pub(crate) fn keep(&self, event: &RawJson) {
        self.log.0.record(&self.stream, None, event.as_str().as_bytes());
    }

    /// What somebody who says much waits for.
    pub(crate) async fn keep_pace(&self) {
        if let Some(pace) = self.log.0.keep_pace() {
            pace.await;
        }
    }

    /// Deletes the oldest events above this number.
    pub(crate) async fn trim_to(&self, entries: u64) -> Trimmed {
        let keep = Retention { entries: Some(entries), ..Retention::default() };
        self.trimmed(self.log.0.trim(&self.stream, keep).await)
    }

    /// Deletes the oldest events above this number, and those that are too old.
    pub(crate) async fn trim(&self, trimmer: &Trimmer, entries: u64, keep: Duration) -> Trimmed {
        self.trimmed(trimmer.trim(&*self.log.0, &self.stream, Some(entries), keep).await)
    }

    fn trimmed(&self, result: Result<Trimmed, StoreError>) -> Trimmed {
        result.unwrap_or_else(|error| {
            tracing::warn!(stream = &*self.stream, %error, "cannot delete old events of sessions");
            Trimmed::default()
        })
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.log.0.follow(&self.stream)
    }

    /// The id of the latest event of any session in the stream.
    pub(crate) async fn head(&self) -> Result<u64, StoreError> {
        Ok(self.log.0.bounds(&self.stream).await?.last)
    }

    /// Events after this id, oldest first; and how far the stream was looked at.
    pub(crate) async fn after(&self, id: u64, limit: usize) -> Result<(Vec<Event>, u64), StoreError> {
        let (mut found, mut seen) = (Vec::new(), id);
        loop {
            let page = self.log.0.read(&self.stream, seen, PAGE).await?;
            let last = page.len() < PAGE;
            for entry in page {
                if found.len() == limit {
                    return Ok((found, seen));
                }
                seen = entry.seq;
                let Ok(text) = std::str::from_utf8(&entry.body) else { continue };
                let Ok(peek) = serde_json::from_str::<Peek>(text) else { continue };
                if *peek.session_id == *self.session
                    && let Some(rest) = text.strip_prefix('{')
                {
                    let json = format!("{{\"id\":{},{rest}", entry.seq);
                    found.push(Event { id: entry.seq, kind: peek.kind, json });
                }
            }
            if last {
                return Ok((found, seen));
            }
        }
    }
}

/// The stream that has a session's events.
fn stream_of(session: &str) -> String {
    let hash = session
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("session:{}", hash % STREAMS)
}
