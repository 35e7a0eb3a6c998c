//! The transition from missed messages to live ones. The store in these tests makes a message
//! readable before it acknowledges the write: in that moment a message could be sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sa_core::retention::{Reading, TrustedClock};
use sa_core::store::{
    Appended, Bounds, Entry, Found, Log, NewEntry, Retention, Search, StoreFuture, Trimmed,
};
use sa_core::{
    AuditEvent, CallRecord, CallStarted, Directory, Journal, Notices, Policy, Principal, Role,
    Router, RouterOptions, Trimmer,
};
use sa_socket::{Close, Liveness, Outbox};
use sa_store::{OpenOptions, Store};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::channel::Member;
use crate::{Channel, ChannelOptions, Channels, Draft, Published, Refusal, Rights, Sender};

/// A store that acknowledges an append only when the test permits it.
struct Slow {
    store: Store,
    answers: Arc<Semaphore>,
}

impl Log for Slow {
    fn append(&self, entry: NewEntry) -> StoreFuture<'_, Appended> {
        Box::pin(async {
            let appended = self.store.append(entry).await?;
            self.answers.acquire().await.expect("open").forget();
            Ok(appended)
        })
    }

    fn record(&self, stream: &str, key: Option<&str>, body: &[u8]) {
        self.store.record(stream, key, body);
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
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

struct Silent;

impl Journal for Silent {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, _: CallRecord) {}

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, _: AuditEvent) {}

    fn count(&self, _: &'static str, _: &'static str) {}
}

fn router() -> Arc<Router> {
    let minute = Duration::from_secs(60);
    let options = RouterOptions {
        max_running: 10,
        max_bytes: 1 << 20,
        default_timeout: minute,
        max_duration: minute,
        queue_timeout: minute,
        reconnect_timeout: minute,
    };
    Router::new(
        Directory::new(Notices::new(), minute),
        Arc::new(Silent),
        None,
        Policy::default(),
        options,
    )
}

fn options(dir: &std::path::Path) -> ChannelOptions {
    let minute = Duration::from_secs(60);
    ChannelOptions {
        liveness: Liveness { ping_every: minute, dead_after: minute },
        max_message_bytes: 1 << 20,
        max_attachment_bytes: 1 << 20,
        max_queue_bytes: 1 << 20,
        max_rate: 1_000,
        max_channels: 16,
        max_stored_bytes: 1 << 20,
        max_bytes_per_channel: 1 << 18,
        max_bytes_per_principal: 1 << 19,
        pending_bytes: 1 << 20,
        keep_messages: 1_000,
        keep: Duration::from_secs(86_400),
        trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
            wall_ms: 0,
            uptime_ms: 0,
        })),
        max_pending: 10,
        attachments: dir.join("attachments"),
    }
}

fn participant(name: &str) -> Principal {
    Principal::new(name, name, Role::Participant)
}

async fn publish(channel: Arc<Channel>) -> u64 {
    try_publish(&channel, "ann").await.unwrap().id.unwrap()
}

async fn try_publish(channel: &Arc<Channel>, name: &str) -> Result<Published, Refusal> {
    let principal = participant(name);
    let rights = Rights { read: true, publish: true, call: true, admin: false };
    let sender = Sender { principal: Arc::new(principal), rights };
    let draft = Draft {
        kind: "note".into(),
        payload: "1",
        persist: true,
        client_message_id: None,
        attachments: Vec::new(),
        bytes: Bytes::new(),
    };
    channel.publish(&sender, draft).await
}

#[tokio::test]
async fn what_a_reader_had_from_the_log_does_not_come_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
    let answers = Arc::new(Semaphore::new(0));
    let log = Arc::new(Slow { store: store.clone(), answers: Arc::clone(&answers) });
    let records = Arc::new(store.clone());
    let channels =
        Channels::open(log, records, router(), options(dir.path()), CancellationToken::new())
            .await
            .unwrap();
    let channel = channels.channel("room", &participant("ann")).await.unwrap();

    let mut last = store.follow(&channel.stream);
    let publishing = tokio::spawn(publish(Arc::clone(&channel)));
    last.wait_for(|last| *last > 0).await.unwrap();
    let missed = channel.after(0, 10).await.unwrap();
    assert_eq!(
        (missed.len(), channel.state().head),
        (1, 0),
        "it can be read, and has not been sent to anybody"
    );
    let seen = missed[0].id;
    let outbox = Outbox::new(1 << 20, Close::new(4429, "too slow"));
    let make = |id| Member {
        id,
        participant: "reader".into(),
        instance: None,
        outbox: outbox.clone(),
        reads: true,
        seen,
        last: AtomicU64::new(seen),
    };
    let member = channel.admit(make, Some(seen), |_, _| {}).unwrap();
    let is_empty = || outbox.emptied().now_or_never().is_some();

    answers.add_permits(1);
    assert_eq!(publishing.await.unwrap(), seen);
    assert!(is_empty(), "the message came twice");
    answers.add_permits(1);
    let next = publish(Arc::clone(&channel)).await;
    assert!(!is_empty(), "what comes after it does come");
    assert_eq!(member.last.load(Ordering::Relaxed), next);
}

#[tokio::test]
async fn a_message_is_in_the_budget_of_memory_until_its_readers_have_been_sent_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
    let records = Arc::new(store.clone());
    let channels = Channels::open(
        Arc::new(store),
        records,
        router(),
        options(dir.path()),
        CancellationToken::new(),
    );
    let channels = channels.await.unwrap();
    let channel = channels.channel("room", &participant("ann")).await.unwrap();
    let pending = channels.budgets()[2];
    publish(Arc::clone(&channel)).await;
    assert_eq!(pending.used(), 0, "nobody reads");

    let outboxes = [(); 2].map(|()| Outbox::new(1 << 20, Close::new(4429, "too slow")));
    for outbox in &outboxes {
        let make = |id| Member {
            id,
            participant: "reader".into(),
            instance: None,
            outbox: outbox.clone(),
            reads: true,
            seen: 0,
            last: AtomicU64::new(0),
        };
        channel.admit(make, None, |_, _| {}).unwrap();
    }
    publish(Arc::clone(&channel)).await;
    let one = pending.used();
    assert!(one > 0, "two readers share it");
    publish(Arc::clone(&channel)).await;
    assert_eq!(pending.used(), 2 * one);
    // The budget stops a sender that is not read; other senders continue.
    let rest = pending.charge(&sa_limits::budget::Holder::named("ann"), 800_000);
    let refused = try_publish(&channel, "ann").await.unwrap_err();
    assert_eq!(refused.code, "overloaded");
    assert!(refused.hint.is_some_and(|hint| hint.contains("channels.pending_bytes")));
    try_publish(&channel, "bob").await.unwrap();
    drop(rest);
    try_publish(&channel, "ann").await.unwrap();
}
