//! The events of a session: sent to its caller at once, and stored for later readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sa_core::store::{Log, NewEntry, Retention, StoreError, Trimmed};
use sa_core::{Notice, NoticeBody, Notices, RawJson, SessionNoticeKind, Trimmer, clock};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Options;
use crate::archive::{Archive, Space};

/// The number of entries to read at a time.
const READ: usize = 256;
/// The size of a page above which it is complete, in bytes.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
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

/// A part of a session's events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) events: Vec<Event>,
    /// The last id that was read.
    pub(crate) last: u64,
    /// Whether more events follow.
    pub(crate) more: bool,
}

#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) session: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) notices: Notices,
    archive: Arc<Archive>,
    pub(crate) space: Arc<Space>,
    max_entries: u64,
    max_bytes: u64,
    trimmer: Arc<Trimmer>,
    /// The bytes written since the last trim.
    written: AtomicU64,
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
        archive: &Arc<Archive>,
        space: Arc<Space>,
        options: &Options,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            owner: Arc::clone(owner),
            notices: notices.clone(),
            archive: Arc::clone(archive),
            space,
            max_entries: options.keep_events,
            max_bytes: options.keep_event_bytes,
            trimmer: Arc::clone(&options.trimmer),
            written: AtomicU64::new(0),
        }
    }

    /// Sends and stores an event with these fields, its kind, the session and the time.
    pub(crate) fn record_event(&self, kind: &str, fields: Value) {
        let event = self.event(kind, fields);
        self.keep(&event);
        self.notify(event);
    }

    /// Sends and stores an event, and returns its id once it and all earlier events are on disk.
    pub(crate) async fn write(&self, kind: &str, fields: Value) -> Result<u64, StoreError> {
        let event = self.event(kind, fields);
        let body = Bytes::copy_from_slice(event.as_str().as_bytes());
        self.count(body.len());
        let stream = Arc::clone(&self.space.stream);
        let written = self.log().append(NewEntry { stream, key: None, body }).await?;
        self.notify(event);
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

    fn notify(&self, event: RawJson) {
        self.notices.send(Notice {
            to: Some(Arc::clone(&self.owner)),
            body: NoticeBody::Session {
                session: Arc::clone(&self.session),
                kind: SessionNoticeKind::Event,
                data: event,
            },
        });
    }

    pub(crate) fn keep(&self, event: &RawJson) {
        self.count(event.as_str().len());
        self.log().record(&self.space.stream, None, event.as_str().as_bytes());
    }

    /// Applies backpressure to a fast writer.
    pub(crate) async fn backpressure(&self) {
        if let Some(backpressure) = self.log().backpressure() {
            backpressure.await;
        }
        self.trim_if_due().await;
    }

    fn count(&self, bytes: usize) {
        self.space.grow(bytes);
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn is_trim_due(&self) -> bool {
        self.written.load(Ordering::Relaxed) > self.space.limit(self.max_bytes) / TRIM_PART
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
        let trimmed = self.trim(None).await;
        self.trimmer.report("session_event", trimmed);
    }

    /// Deletes the oldest events above the limits, and with `keep` also expired ones.
    pub(crate) async fn trim(&self, keep: Option<Duration>) -> Trimmed {
        self.written.store(0, Ordering::Relaxed);
        let bytes = self.archive.make_space(&self.space, self.max_bytes).await;
        let (stream, entries) = (&self.space.stream, Some(self.max_entries));
        let limits = Retention { entries, bytes: Some(bytes), aged: None };
        let trimmed = match keep {
            Some(keep) => self.trimmer.trim_to(self.log(), stream, limits, keep).await,
            None => self.log().trim(stream, limits).await,
        };
        match trimmed {
            Ok(trimmed) => {
                self.space.reduced(bytes);
                trimmed
            }
            Err(error) => {
                tracing::warn!(session = &*self.session, %error, "cannot delete old events");
                Trimmed::default()
            }
        }
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.log().follow(&self.space.stream)
    }

    /// Returns the id of the latest event.
    pub(crate) async fn head(&self) -> Result<u64, StoreError> {
        Ok(self.log().bounds(&self.space.stream).await?.last)
    }

    /// Returns the events after this id, at most `limit`, and not many more than [`PAGE_BYTES`].
    pub(crate) async fn after(&self, id: u64, limit: usize) -> Result<Page, StoreError> {
        let (mut page, mut bytes) = (Page { last: id, ..Page::default() }, 0);
        loop {
            let entries = self.log().read(&self.space.stream, page.last, READ).await?;
            let is_last = entries.len() < READ;
            for entry in entries {
                if page.events.len() == limit || bytes >= PAGE_BYTES {
                    page.more = true;
                    return Ok(page);
                }
                page.last = entry.seq;
                let Ok(text) = std::str::from_utf8(&entry.body) else { continue };
                let Ok(peek) = serde_json::from_str::<Peek>(text) else { continue };
                // An event of an earlier session may be left in the stream after an error.
                if *peek.session_id == *self.session
                    && let Some(rest) = text.strip_prefix('{')
                {
                    let json = format!("{{\"id\":{},{rest}", entry.seq);
                    bytes += json.len();
                    page.events.push(Event { id: entry.seq, kind: peek.kind, json });
                }
            }
            if is_last {
                return Ok(page);
            }
        }
    }

    fn log(&self) -> &dyn Log {
        &*self.archive.log
    }
}
