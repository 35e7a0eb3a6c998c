//! Rule: one principal can use neither all channels nor all storage, and its usage is still
//! counted after a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sa_channels::{
    Channel, ChannelOptions, Channels, Draft, OpenError, Published, Refusal, Sender,
};
use sa_core::retention::{Reading, Trimmer, TrustedClock};
use sa_core::{
    AuditEvent, CallRecord, CallStarted, Directory, Journal, Notices, Policy, Principal, Role,
    Router, RouterOptions,
};
use sa_http::Rights;
use sa_limits::budget::{Holder, SharedBudget};
use sa_protocol::channel::AttachmentMeta;
use sa_socket::Liveness;
use sa_store::{OpenOptions, Store};
use tokio_util::sync::CancellationToken;

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

async fn open(store: &Store, dir: &Path) -> Arc<Channels> {
    let minute = Duration::from_secs(60);
    let options = ChannelOptions {
        liveness: Liveness { ping_every: minute, dead_after: minute },
        max_message_bytes: 1 << 20,
        max_attachment_bytes: 1 << 20,
        max_queue_bytes: 1 << 20,
        max_rate: 1_000,
        max_channels: 16,
        max_stored_bytes: 160_000,
        max_bytes_per_channel: 20_000,
        max_bytes_per_principal: 30_000,
        pending_bytes: 1 << 20,
        keep_messages: 1_000,
        keep: Duration::from_secs(86_400),
        trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
            wall_ms: 0,
            uptime_ms: 0,
        })),
        max_pending: 10,
        attachments: dir.join("attachments"),
    };
    let directory = Directory::new(Notices::new(), minute);
    let router =
        Router::new(directory, Arc::new(Silent), None, Policy::default(), RouterOptions::default());
    let (log, records) = (Arc::new(store.clone()), Arc::new(store.clone()));
    Channels::open(log, records, router, options, CancellationToken::new()).await.unwrap()
}

fn store(dir: &Path) -> Store {
    Store::open(OpenOptions::new(dir.join("store.db"))).unwrap()
}

fn principal(name: &str, role: Role) -> Principal {
    Principal::new(name, name, role)
}

fn agent(name: &str) -> Principal {
    principal(name, Role::Agent)
}

async fn publish(
    channel: &Arc<Channel>,
    name: &str,
    payload: usize,
    attached: usize,
) -> Result<Published, Refusal> {
    let rights = Rights { read: true, publish: true, call: true, admin: false };
    let sender = Sender { principal: Arc::new(agent(name)), rights };
    let meta = AttachmentMeta {
        id: Some("a".into()),
        mime_type: "a/b".into(),
        name: None,
        size: attached as u64,
    };
    let draft = Draft {
        kind: "note".into(),
        payload: &format!("\"{}\"", "x".repeat(payload)),
        persist: true,
        client_message_id: (attached > 0).then(|| "again".into()),
        attachments: if attached > 0 { vec![meta] } else { Vec::new() },
        bytes: Bytes::from(vec![7; attached]),
    };
    channel.publish(&sender, draft).await
}

fn stored(channels: &Channels) -> &Arc<SharedBudget> {
    channels.budgets()[1]
}

#[tokio::test]
async fn one_token_cannot_create_every_channel() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let channels = open(&store, dir.path()).await;
    let (greedy, other) = (agent("greedy"), agent("other"));
    for n in 0..12 {
        channels.channel(&format!("g{n}"), &greedy).await.unwrap();
    }
    let Err(OpenError::TooMany(refused)) = channels.channel("g12", &greedy).await else {
        panic!("it has its share")
    };
    assert!(
        refused.message.contains("12 of 16 channels")
            && refused.hint.contains("channels.max_channels"),
        "{refused:?}"
    );
    channels.channel("g0", &greedy).await.expect("one that exists takes nothing more");
    for n in 0..3 {
        channels.channel(&format!("o{n}"), &other).await.unwrap();
    }
    assert!(
        matches!(channels.channel("x", &agent("third")).await, Err(OpenError::TooMany(_))),
        "a sixteenth is reserved"
    );
    channels.channel("op", &principal("operator", Role::Operator)).await.unwrap();
    drop(channels);

    // After a restart the channels count as before.
    let channels = open(&store, dir.path()).await;
    assert_eq!(channels.budgets()[0].used(), 16);
    channels.delete("op").await.unwrap();
    assert!(matches!(channels.channel("g12", &greedy).await, Err(OpenError::TooMany(_))));
    for n in 0..4 {
        channels.delete(&format!("g{n}")).await.unwrap();
    }
    channels.channel("g12", &greedy).await.unwrap();
}

#[tokio::test]
async fn what_is_stored_has_a_quota_for_each_channel_and_each_principal() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let channels = open(&store, dir.path()).await;
    let mut rooms = Vec::new();
    for n in 0..3 {
        rooms.push(channels.channel(&format!("r{n}"), &agent("ann")).await.unwrap());
    }
    publish(&rooms[0], "ann", 14_000, 0).await.unwrap();
    let refused = publish(&rooms[0], "bob", 6_000, 0).await.unwrap_err();
    assert_eq!(refused.code, "overloaded");
    assert!(
        refused.message.contains("\"r0\"") && refused.message.contains("of the 20000"),
        "{}",
        refused.message
    );
    assert!(refused.hint.is_some_and(|hint| hint.contains("channels.max_bytes_per_channel")));
    publish(&rooms[0], "bob", 1_000, 0).await.expect("a smaller one fits");

    publish(&rooms[1], "ann", 14_000, 0).await.unwrap();
    let refused = publish(&rooms[2], "ann", 2_000, 0).await.unwrap_err();
    assert!(refused.message.contains("of the 30000"), "{}", refused.message);
    assert!(refused.hint.is_some_and(|hint| hint.contains("channels.max_bytes_per_principal")));
    publish(&rooms[2], "bob", 2_000, 0).await.expect("another one has a quota of its own");

    // Deleting a channel releases its bytes.
    drop(rooms);
    channels.keep_house().await;
    channels.delete("r1").await.unwrap();
    let room = channels.channel("r2", &agent("ann")).await.unwrap();
    publish(&room, "ann", 14_000, 0).await.unwrap();
}

#[tokio::test]
async fn what_is_stored_counts_after_a_restart_and_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let ann = Holder::named("ann");
    let channels = open(&store, dir.path()).await;
    let room = channels.channel("room", &agent("ann")).await.unwrap();
    publish(&room, "ann", 5_000, 0).await.unwrap();
    channels.keep_house().await;
    let written = stored(&channels).held_by(&ann);
    // This message is in no usage record.
    publish(&room, "ann", 7_000, 2_000).await.unwrap();
    let all = stored(&channels).held_by(&ann);
    assert!(written >= 5_000 && all >= written + 9_000);
    drop((room, channels));

    let channels = open(&store, dir.path()).await;
    // Checked before any channel is opened: a restart must not release a principal's used quota.
    let counted = stored(&channels).held_by(&ann);
    assert!((written + 9_000..=all + 400).contains(&counted), "{counted} of {all}");
    let other = channels.channel("other", &agent("ann")).await.unwrap();
    publish(&other, "ann", 15_500, 0).await.unwrap_err();
}

#[tokio::test]
async fn a_message_that_is_sent_again_takes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let channels = open(&store, dir.path()).await;
    let room = channels.channel("room", &agent("ann")).await.unwrap();
    publish(&room, "ann", 10, 5_000).await.unwrap();
    let used = stored(&channels).used();
    for _ in 0..20 {
        assert!(publish(&room, "ann", 10, 5_000).await.unwrap().duplicate);
    }
    assert_eq!(stored(&channels).used(), used);
    let files = || {
        let channel = std::fs::read_dir(dir.path().join("attachments"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        std::fs::read_dir(channel).unwrap().count()
    };
    let removed = async {
        while files() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), removed)
        .await
        .expect("files of the repeated ones are deleted");
}
