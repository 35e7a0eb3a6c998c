//! The events of a session: sent to its caller at once, and stored for later readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sa_core::store::{Log, NewEntry, Retention, StoreError, Trimmed};
use sa_core::{Notice, NoticeBody, Notices, RawJson, SessionNews, Trimmer, clock};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Options;

/// The number of streams that sessions share. A store has space for a million streams in its
/// lifetime, and there may be more sessions than that.
const STREAMS: u64 = 1_024;
/// The number of entries to read at a time.
const PAGE: usize = 256;
/// A session that has written more than this fraction of its byte limit is trimmed before the
/// next regular trim.
const TRIM_PART: u64 = 4;

/// A stored event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Increases from event to event, with gaps.
    pub id: u64,
    pub kind: String,
    /// The whole event as JSON, including its id.
    pub json: String,
}

#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) session: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) notices: Notices,
    log: LogHandle,
    stream: Arc<str>,
    /// The limits of the stream.
    limits: Retention,
    trimmer: Arc<Trimmer>,
    /// The bytes written since the last trim.
    written: AtomicU64,
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
    pub(crate) fn new(
        session: &Arc<str>,
        owner: &Arc<str>,
        notices: &Notices,
        log: &Arc<dyn Log>,
        options: &Options,
    ) -> Self {
        let (entries, bytes) = (Some(options.keep_events), Some(options.keep_event_bytes));
        Self {
            session: Arc::clone(session),
            owner: Arc::clone(owner),
            notices: notices.clone(),
            log: LogHandle(Arc::clone(log)),
            stream: stream_of(session).into(),
            limits: Retention { entries, bytes, aged: None },
            trimmer: Arc::clone(&options.trimmer),
            written: AtomicU64::new(0),
        }
    }

    /// Sends and stores an event with these fields, its kind, the session and the time.
    pub(crate) fn say(&self, kind: &str, fields: Value) {
        let event = self.event(kind, fields);
        self.keep(&event);
        self.tell(event);
    }

    /// Sends and stores an event, and returns its id once it and all earlier events are on disk.
    pub(crate) async fn write(&self, kind: &str, fields: Value) -> Result<u64, StoreError> {
        let event = self.event(kind, fields);
        let body = Bytes::copy_from_slice(event.as_str().as_bytes());
        self.count(body.len());
        let written = self
            .log
            .0
            .append(NewEntry { stream: Arc::clone(&self.stream), key: None, body })
            .await?;
        self.tell(event);
        self.trim_if_due().await;
        Ok(written.seq)
    }

    fn event(&self, kind: &str, fields: Value) -> RawJson {
        let mut event =
            json!({ "type": kind, "session_id": &*self.session, "at_ms": clock::now_ms() });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        RawJson::of(&event)
    }

    fn tell(&self, event: RawJson) {
        self.notices.send(Notice {
            to: Some(Arc::clone(&self.owner)),
            body: NoticeBody::Session {
                session: Arc::clone(&self.session),
                kind: SessionNews::Event,
                data: event,
            },
        });
    }

    pub(crate) fn keep(&self, event: &RawJson) {
        self.count(event.as_str().len());
        self.log.0.record(&self.stream, None, event.as_str().as_bytes());
    }

    /// Applies backpressure to a fast writer.
    pub(crate) async fn keep_pace(&self) {
        if let Some(pace) = self.log.0.keep_pace() {
            pace.await;
        }
        self.trim_if_due().await;
    }

    fn count(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn is_trim_due(&self) -> bool {
        let part = self.limits.bytes.map_or(u64::MAX, |bytes| bytes / TRIM_PART);
        self.written.load(Ordering::Relaxed) > part
    }

    /// Deletes the oldest events above the limits, if many bytes were written since the last
    /// trim.
    async fn trim_if_due(&self) {
        if self.is_trim_due() {
            self.trim_to_limits().await;
        }
    }

    /// Starts the same in a background task.
    pub(crate) fn trim_soon(self: &Arc<Self>) {
        if self.is_trim_due()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let events = Arc::clone(self);
            runtime.spawn(async move { events.trim_if_due().await });
        }
    }

    /// Deletes the oldest events above the limits.
    pub(crate) async fn trim_to_limits(&self) {
        self.written.store(0, Ordering::Relaxed);
        let trimmed = self.trimmed(self.log.0.trim(&self.stream, self.limits).await);
        self.trimmer.report("session_event", trimmed);
    }

    /// Deletes the oldest events above the limits, and expired ones.
    pub(crate) async fn trim(&self, keep: Duration) -> Trimmed {
        self.written.store(0, Ordering::Relaxed);
        self.trimmed(self.trimmer.trim_to(&*self.log.0, &self.stream, self.limits, keep).await)
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

    /// Returns the id of the latest event of any session in the stream.
    pub(crate) async fn head(&self) -> Result<u64, StoreError> {
        Ok(self.log.0.bounds(&self.stream).await?.last)
    }

    /// Returns the events after this id, oldest first, and the last id that was read.
    pub(crate) async fn after(
        &self,
        id: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), StoreError> {
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

/// Returns the name of the stream with a session's events.
fn stream_of(session: &str) -> String {
    let hash = session.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("session:{}", hash % STREAMS)
}
