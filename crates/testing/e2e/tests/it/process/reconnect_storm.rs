//! After a kill and restart of the gateway, all clients reconnect soon. Participants miss no
//! message that was sent meanwhile, and nodes can be called again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sa_gateway_kit::messaging::backoff;
use sa_gateway_kit::{
    Agent, Gateway, Message, Participant, Setup, count, eventually, raise_file_limit, registry,
};
use sa_node_sdk::{NodeClient, NodeSdkError};
use sa_protocol::ReconnectBackoff;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::SWITCHBOARD;

/// Participants per channel. Each participant receives every join event, so there are many
/// channels.
const IN_A_CHANNEL: usize = 20;
/// Clients for each node.
const CLIENTS_OF_A_NODE: usize = 20;
/// Concurrent connections at the start, which is not measured.
const AT_ONCE: usize = 50;
/// Longer than any reconnect delay, and than a slow machine needs for ten thousand clients.
const TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_back_after_a_restart_and_has_missed_nothing() {
    // `cargo xtask prove` runs ten thousand clients with the default reconnect delays.
    let clients = count("SWITCHBOARD_RESTART_CLIENTS", 200);
    let limit = Duration::from_secs(count("SWITCHBOARD_RESTART_SECONDS", 0) as u64);
    let backoff = if limit.is_zero() { backoff() } else { ReconnectBackoff::default() };
    // Uses a release build if there is one, because times of an unoptimised one mean little.
    let program =
        std::env::var("SWITCHBOARD_RESTART_PROGRAM").unwrap_or_else(|_| SWITCHBOARD.into());
    raise_file_limit();
    let mut gateway = Setup::new().config("[log]\nfilter = \"error\"").spawn(&program).await;
    let crowd = Crowd::join(&gateway, clients, &backoff).await;
    crowd.say(&gateway, "before").await;
    crowd.heard(clients).await;

    let again = Setup::new().config("[log]\nfilter = \"error\"").on(&gateway).at(gateway.address());
    gateway.kill().await;
    let killed = Instant::now();
    let gateway = again.spawn(&program).await;
    let started = Instant::now();
    // Most clients have not reconnected yet.
    crowd.say(&gateway, "after").await;
    crowd.heard(clients).await;
    let back = started.elapsed();
    let nodes = crowd.nodes.len();
    eventually("the nodes online", || async {
        (online(&gateway.operator()).await == nodes).then_some(())
    })
    .await;
    let all_back = started.elapsed();
    let node = format!("node-{}.echo", nodes - 1);
    assert_eq!(gateway.operator().call(&node, json!({ "n": 1 })).await.result(), json!({ "n": 1 }));

    eprintln!(
        "{clients} clients were back {back:?} after the start, {nodes} nodes after {all_back:?}"
    );
    eprintln!("the start was {:?} after the end", started - killed);
    eprintln!("the gateway used {:?} of a processor; program: {program}", used(gateway.pid()));
    crowd.leave().await;
    if !limit.is_zero() {
        assert!(all_back <= limit, "it took {all_back:?}");
    }
    gateway.stop().await;
}

async fn online(operator: &Agent) -> usize {
    let status = operator.get("/v1/status").await.body;
    usize::try_from(status["nodes_online"].as_u64().unwrap()).unwrap()
}

/// Clients that record their messages, and nodes.
struct Crowd {
    channels: usize,
    readers: Vec<JoinHandle<Vec<String>>>,
    nodes: Vec<JoinHandle<Result<(), NodeSdkError>>>,
    /// Has a permit for each received message.
    heard: Arc<Semaphore>,
    leave: CancellationToken,
}

impl Crowd {
    async fn join(gateway: &Gateway, clients: usize, backoff: &ReconnectBackoff) -> Self {
        let (heard, leave) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let mut tokens = Vec::new();
        for n in 0..IN_A_CHANNEL {
            tokens.push(Participant::token(gateway, &format!("reader-{n}")).await);
        }
        #[expect(
            clippy::async_yields_async,
            reason = "each reads on from the moment that it is there"
        )]
        let client = |n: usize| {
            let (token, channel) = (&tokens[n % IN_A_CHANNEL], channel(n / IN_A_CHANNEL));
            let mut client = Client {
                address: gateway.address().into(),
                path: format!("/v1/channels/ws?token={token}&channel={channel}&roster=snapshot"),
                backoff: backoff.clone(),
                last: 0,
                epoch: None,
                all: Vec::new(),
                heard: Arc::clone(&heard),
            };
            let leave = leave.clone();
            async move {
                let connection = client.connect().await.expect("the gateway is here");
                tokio::spawn(async move {
                    leave.run_until_cancelled(client.stay(connection)).await;
                    client.all
                })
            }
        };
        let readers = stream::iter((0..clients).map(client)).buffered(AT_ONCE).collect().await;
        let node = |n: usize| {
            let id = format!("node-{n}");
            let builder = NodeClient::builder().gateway_ws_url(gateway.nodes_url()).node_id(&id);
            let node = builder.reconnect_backoff(backoff.clone()).build().unwrap();
            node.spawn(registry(&format!("{id}.echo"), |_, args| async { Ok(args) }), leave.clone())
        };
        let nodes: Vec<_> = (0..clients.div_ceil(CLIENTS_OF_A_NODE)).map(node).collect();
        let operator = gateway.operator();
        eventually("the nodes online", || async {
            (online(&operator).await == nodes.len()).then_some(())
        })
        .await;
        Self { channels: clients.div_ceil(IN_A_CHANNEL), readers, nodes, heard, leave }
    }

    /// Sends a message to every channel.
    async fn say(&self, gateway: &Gateway, what: &str) {
        let operator = gateway.operator();
        let body = json!({ "type": "message", "payload": { "id": uuid::Uuid::new_v4(), "content": what } });
        let say = |n: usize| {
            let (operator, body) = (&operator, &body);
            async move {
                let said =
                    operator.post(&format!("/v1/channels/{}/messages", channel(n)), body).await;
                assert!(said.status < 300, "{}", said.text);
            }
        };
        stream::iter((0..self.channels).map(say)).buffer_unordered(8).collect::<()>().await;
    }

    /// Waits until every client has received one more message.
    async fn heard(&self, clients: usize) {
        let all = self.heard.acquire_many(u32::try_from(clients).unwrap());
        let all = tokio::time::timeout(TIMEOUT, all).await;
        all.unwrap_or_else(|_| panic!("{} of {clients} heard it", self.heard.available_permits()))
            .unwrap()
            .forget();
    }

    /// Disconnects all clients and checks their messages.
    async fn leave(self) {
        self.leave.cancel();
        for (n, reader) in self.readers.into_iter().enumerate() {
            assert_eq!(reader.await.unwrap(), ["before", "after"], "client {n}");
        }
        for node in self.nodes {
            assert!(matches!(node.await.unwrap(), Err(NodeSdkError::Shutdown)));
        }
    }
}

fn channel(n: usize) -> String {
    format!("room-{n}")
}

/// A minimal client that can resume. All ten thousand share this process with the test, whereas
/// real clients run on separate machines.
struct Client {
    address: String,
    path: String,
    backoff: ReconnectBackoff,
    last: u64,
    epoch: Option<String>,
    all: Vec<String>,
    heard: Arc<Semaphore>,
}

impl Client {
    /// Connects, and reads until the gateway reports the end of the replay.
    async fn connect(&mut self) -> Option<Participant> {
        let since =
            self.epoch.as_ref().map(|epoch| format!("&sinceId={}&epoch={epoch}", self.last));
        let path = format!("{}{}", self.path, since.unwrap_or_default());
        let mut connection = Participant::try_connect(&self.address, &path).await.ok()?;
        while let Some(Ok(message)) = connection.socket.next().await {
            if self.take(&message) {
                return Some(connection);
            }
        }
        None
    }

    /// Reads without end, and reconnects whenever the connection is lost.
    async fn stay(&mut self, mut connection: Participant) {
        loop {
            while let Some(Ok(message)) = connection.socket.next().await {
                self.take(&message);
            }
            let mut attempt = 0;
            connection = loop {
                tokio::time::sleep(self.backoff.delay(attempt, rand::random())).await;
                attempt += 1;
                if let Some(connection) = self.connect().await {
                    break connection;
                }
            };
        }
    }

    /// Records a message. Returns whether the replay has ended. Presence events are not even
    /// parsed.
    fn take(&mut self, message: &Message) -> bool {
        let Message::Text(text) = message else { return false };
        if !text.contains(r#""message""#) && !text.contains(r#""ready""#) {
            return false;
        }
        let frame: Value = serde_json::from_str(text).unwrap();
        if frame["kind"] == "ready" {
            assert!(self.epoch.is_none() || frame["recovered"] == true, "{frame}");
            self.epoch = frame["epoch"].as_str().map(Into::into);
            return true;
        }
        if frame["type"] == "message" {
            self.last = frame["id"].as_u64().unwrap();
            self.all.push(frame["payload"]["content"].as_str().unwrap().to_owned());
            self.heard.add_permits(1);
        }
        false
    }
}

/// Returns the CPU time of a process.
fn used(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The third field follows the name. The times are fields 14 and 15, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let hundredths: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(hundredths * 10)
}
