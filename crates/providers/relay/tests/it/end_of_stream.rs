//! Rule: a stream of a session's events ends with `session_ended`, however late that event is
//! written.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::store::{
    Appended, Bounds, Entry, Found, Log, NewEntry, Retention, Search, StoreFuture, Trimmed,
};
use sa_relay::SessionItem;
use sa_store::Store;
use serde_json::json;
use tokio::sync::watch;

use crate::kit::{Kit, SOON, principal};

/// A log that delays `session_ended` until it is released.
struct DelayedLog {
    store: Arc<Store>,
    held: Mutex<Option<(String, Vec<u8>)>>,
}

impl DelayedLog {
    fn held(&self) -> (String, String) {
        let (stream, body) = self.held.lock().clone().unwrap();
        (stream, String::from_utf8(body).unwrap())
    }

    /// Writes another event of the same session.
    fn output(&self) {
        let (stream, body) = self.held();
        self.store.record(&stream, None, body.replace("session_ended", "output").as_bytes());
    }

    fn release(&self) {
        let (stream, body) = self.held();
        self.store.record(&stream, None, body.as_bytes());
    }
}

impl Log for DelayedLog {
    fn append(&self, entry: NewEntry) -> StoreFuture<'_, Appended> {
        self.store.append(entry)
    }

    fn record(&self, stream: &str, key: Option<&str>, body: &[u8]) {
        if body.windows(13).any(|part| part == b"session_ended") {
            *self.held.lock() = Some((stream.to_owned(), body.to_vec()));
        } else {
            self.store.record(stream, key, body);
        }
    }

    fn backpressure(&self) -> Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.store.backpressure()
    }

    fn read(&self, stream: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.store.read(stream, after, limit)
    }

    fn read_back(&self, stream: &str, before: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.store.read_back(stream, before, limit)
    }

    fn find(&self, stream: &str, key: &str) -> StoreFuture<'_, Option<Entry>> {
        self.store.find(stream, key)
    }

    fn search(
        &self,
        stream: &str,
        search: Search,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Found> {
        self.store.search(stream, search, before, limit)
    }

    fn bounds(&self, stream: &str) -> StoreFuture<'_, Bounds> {
        self.store.bounds(stream)
    }

    fn follow(&self, stream: &str) -> watch::Receiver<u64> {
        self.store.follow(stream)
    }

    fn trim(&self, stream: &str, keep: Retention) -> StoreFuture<'_, Trimmed> {
        self.store.trim(stream, keep)
    }
}

#[tokio::test]
async fn the_last_event_of_a_stream_is_the_end_of_the_session() {
    let mut late = None;
    let kit = Kit::with_log("", Duration::ZERO, |store| {
        let log = Arc::new(DelayedLog { store, held: Mutex::default() });
        late = Some(Arc::clone(&log));
        log
    })
    .await;
    let late = late.unwrap();
    let owner = principal("owner");
    let (session, _agent) = kit.session(&owner).await;
    let mut stream = kit.sessions.follow(&owner, &session, None, true).await.unwrap();
    kit.call(&owner, "session_end", json!({ "session_id": session })).await.unwrap();
    let mut kinds = Vec::new();
    for step in 0..6 {
        let write = async {
            tokio::task::yield_now().await;
            if step < 5 { late.output() } else { late.release() }
        };
        let (items, ()) = tokio::join!(tokio::time::timeout(SOON, stream.next()), write);
        for item in items.unwrap().unwrap().expect("the stream ended before its session_ended") {
            let SessionItem::Event(event) = item else { panic!("{item:?}") };
            kinds.push(event.kind);
        }
    }
    let outputs = kinds.iter().filter(|kind| *kind == "output").count();
    assert_eq!(
        (outputs, kinds.last().map(String::as_str)),
        (5, Some("session_ended")),
        "{kinds:?}"
    );
    assert!(tokio::time::timeout(SOON, stream.next()).await.unwrap().unwrap().is_none());
}
