//! Channels behind a WebSocket route, and a participant that sends exactly the frames of a test.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router as Routes;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::future::BoxFuture;
use futures_util::{SinkExt as _, StreamExt as _};
use sa_channels::{Admission, ChannelOptions, Channels, Entrance};
use sa_core::policy::Pattern;
use sa_core::retention::{Reading, Trimmer, TrustedClock};
use sa_core::{
    AuditEvent, CallRecord, CallStarted, Directory, Journal, Notices, Policy, Principal, Role,
    Router, RouterOptions,
};
use sa_http::Rights;
use sa_socket::{Liveness, SocketLimits, Upgrade};
use sa_store::{OpenOptions, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

/// Fails the test if the future does not complete in time.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("this never happened")
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

/// Channels that participants can connect to.
pub(crate) struct Server {
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Arc<Router>,
    address: String,
    serving: tokio::task::JoinHandle<()>,
    shutdown: CancellationToken,
    store: Store,
    quota: usize,
    dir: Arc<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with_quota(8 << 20).await
    }

    /// Starts a server; `quota` is the storage limit of one participant.
    pub(crate) async fn with_quota(quota: usize) -> Self {
        Self::open(Arc::new(tempfile::tempdir().unwrap()), quota).await
    }

    /// Ends the server, and starts another one with the same store.
    pub(crate) async fn restart(&mut self) {
        self.shutdown.cancel();
        self.serving.abort();
        self.store.shutdown().await.unwrap();
        *self = Self::open(Arc::clone(&self.dir), self.quota).await;
    }

    /// Closes a channel as the regular sweep does, once all participants are away.
    pub(crate) async fn close_idle(&self, channel: &str) {
        let open = Arc::downgrade(&self.channels.existing(channel).await.unwrap().unwrap());
        soon(async {
            while open.strong_count() > 0 {
                self.channels.keep_house().await;
            }
        })
        .await;
    }

    async fn open(dir: Arc<TempDir>, quota: usize) -> Self {
        let minute = Duration::from_secs(60);
        let options = ChannelOptions {
            liveness: Liveness { ping_every: minute, dead_after: minute },
            max_message_bytes: 1 << 20,
            max_attachment_bytes: 1 << 20,
            max_queue_bytes: 1 << 20,
            max_rate: 1_000,
            max_channels: 16,
            max_stored_bytes: 16 << 20,
            max_bytes_per_channel: 8 << 20,
            max_bytes_per_principal: quota,
            pending_bytes: 8 << 20,
            keep_messages: 1_000,
            keep: Duration::from_secs(86_400),
            trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
                wall_ms: 0,
                uptime_ms: 0,
            })),
            max_pending: 10,
            attachments: dir.path().join("attachments"),
        };
        let directory = Directory::new(Notices::new(), minute);
        let router = Router::new(
            directory,
            Arc::new(Silent),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        let (log, records) = (Arc::new(store.clone()), Arc::new(store.clone()));
        let shutdown = CancellationToken::new();
        let opened = Channels::open(log, records, Arc::clone(&router), options, shutdown.clone());
        let channels = opened.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Routes::new().route("/", get(upgrade)).with_state(Arc::clone(&channels));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { channels, router, address, serving, shutdown, store, quota, dir }
    }

    /// Connects to the channel `room` with this query, and reads nothing yet. The token is the
    /// participant's name; `tools` is a pattern of the tools that it includes.
    pub(crate) async fn connect(&self, query: &str) -> Participant {
        self.connect_to("room", query).await
    }

    /// Connects to any channel.
    pub(crate) async fn connect_to(&self, channel: &str, query: &str) -> Participant {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let url = format!("ws://{}/?channel={channel}&{query}", self.address);
        let (socket, _) = soon(client_async(url, stream)).await.unwrap();
        Participant { socket, next_ref: 1 }
    }

    /// Connects, and waits until the participant is present.
    pub(crate) async fn join(&self, query: &str) -> Participant {
        let mut participant = self.connect(query).await;
        participant.here().await;
        participant
    }
}

async fn upgrade(
    State(channels): State<Arc<Channels>>,
    Query(query): Query<HashMap<String, String>>,
    upgrade: Upgrade,
) -> Response {
    let get = |name: &str| query.get(name).cloned();
    let name = get("token").unwrap_or_default();
    let mut principal = Principal::new(name.as_str(), name.as_str(), Role::Participant);
    principal.tools.extend(get("tools").map(|tools| Pattern::new(&tools)));
    let rights =
        Rights { read: true, publish: get("readonly").is_none(), call: true, admin: false };
    let admission =
        Admission { principal: Arc::new(principal), rights, revoked: CancellationToken::new() };
    let entrance = Entrance {
        channel: get("channel").unwrap_or_default(),
        since: get("sinceId").and_then(|since| since.parse().ok()),
        epoch: None,
        snapshot: get("roster").is_some(),
        instance: get("instance"),
        context: get("contextId"),
        config: get("channelConfig"),
    };
    let limits =
        SocketLimits { max_message_bytes: channels.max_frame_bytes(), cuts: false, budget: None };
    upgrade.serve(limits, move |socket| channels.serve(socket, admission, entrance))
}

pub(crate) struct Participant {
    pub(crate) socket: WebSocketStream<TcpStream>,
    next_ref: i64,
}

impl Participant {
    /// Reads until the participant's own join message.
    pub(crate) async fn here(&mut self) {
        self.until(|frame| frame["kind"] == "ready").await;
        self.until(|frame| frame["payload"]["action"] == "join").await;
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Sends a frame, and waits for its answer.
    async fn request(&mut self, mut frame: Value) -> Value {
        let reference = self.next_ref;
        self.next_ref += 1;
        frame["ref"] = json!(reference);
        self.send(frame).await;
        self.until(|frame| frame["ref"] == reference).await
    }

    /// Publishes a stored message, and waits for the answer.
    pub(crate) async fn say(&mut self, kind: &str, payload: Value) -> Value {
        self.request(
            json!({ "action": "publish", "type": kind, "payload": payload, "persist": true }),
        )
        .await
    }

    /// Replaces the participant's metadata, and waits for the answer.
    pub(crate) async fn update(&mut self, metadata: Value) -> Value {
        self.request(json!({ "action": "update-metadata", "payload": metadata })).await
    }

    /// Waits for the end of the connection, and returns the close code and reason.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match soon(self.socket.next()).await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("expected a close, got {other:?}"),
            }
        }
    }

    /// Returns the next frame, or `None` if the connection was closed.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            match soon(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                // A close frame is answered at the next read of the socket, which then ends.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_))) => {}
                Some(Err(Error::ConnectionClosed)) | None => return None,
                other => panic!("expected a frame, got {other:?}"),
            }
        }
    }

    /// Returns the next frame that satisfies this condition.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await.expect("the connection was closed");
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Returns the next message of this type.
    pub(crate) async fn message(&mut self, kind: &str) -> Value {
        self.until(|frame| frame["type"] == kind).await
    }
}
