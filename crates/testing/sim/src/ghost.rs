//! A connection that claims the id of a node, like an old process of that node or an attacker. It
//! accepts calls and never answers them. It also sends answers for calls of other connections, even
//! after a newer connection has replaced it.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use sa_protocol::node::{Features, Hello, Incoming, ToolResponse, encode_hello, encode_response};
use sa_protocol::{NodeInfo, PROTOCOL_VERSION};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use turmoil::net::TcpStream;

use crate::gateway::PORT;
use crate::world::{RunEnd, World, number_in};
use crate::{GATEWAY, GHOST};

/// How long it reads incoming frames, and how long it stays connected after that.
const READS: Duration = Duration::from_secs(3);
const STAYS: Duration = Duration::from_secs(17);
/// The forged answer.
pub(crate) const FORGED: &str = r#"{"forged":true}"#;

pub(crate) async fn run(world: World) -> turmoil::Result {
    loop {
        let node = world.next_haunt().await;
        let ended = haunt(&world, node).await;
        world.note(GHOST, &format!("is gone from {node}: {ended:?}"));
    }
}

/// Returns `None` when the connection broke.
async fn haunt(world: &World, node: &str) -> Option<()> {
    let connect = async {
        let stream = TcpStream::connect((GATEWAY, PORT)).await.ok()?;
        Some(client_async(format!("ws://{GATEWAY}:{PORT}/v1/nodes/ws"), stream).await.ok()?.0)
    };
    let mut socket = timeout(Duration::from_secs(5), connect).await.ok()??;
    socket.send(Message::text(hello(node))).await.ok()?;
    let reads_until = Instant::now() + READS;
    while let Ok(message) = timeout_at(reads_until, socket.next()).await {
        if let Message::Text(text) = message?.ok()?
            && let Ok(Incoming::Request(request)) = Incoming::decode(&text)
        {
            let number = number_in(request.args.unwrap_or_default());
            world.run_begins(GHOST, number, &request.request_id).ends(RunEnd::Swallowed);
        }
        forge(world, &mut socket).await?;
    }
    // From here on it no longer reads, so it does not notice that it was disconnected.
    let until = Instant::now() + STAYS;
    while Instant::now() < until {
        forge(world, &mut socket).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Some(())
}

/// Answers every call that a node is running. None of them was dispatched to this connection.
async fn forge(world: &World, socket: &mut WebSocketStream<TcpStream>) -> Option<()> {
    for request_id in world.running_now() {
        let mut text = String::new();
        let outcome = Ok(Some(FORGED));
        encode_response(
            &mut text,
            &ToolResponse { request_id: request_id.into(), outcome, attachments: vec![] },
        );
        socket.feed(Message::text(text)).await.ok()?;
    }
    socket.flush().await.ok()
}

fn hello(node: &str) -> String {
    let mut text = String::new();
    let info = NodeInfo {
        id: node.to_owned(),
        name: node.to_owned(),
        node_type: "generic".to_owned(),
        version: "0".to_owned(),
        tags: vec![],
    };
    encode_hello(
        &mut text,
        &Hello {
            protocol_version: PROTOCOL_VERSION,
            node: info,
            capabilities: vec![node.to_owned()],
            tools: vec![],
            features: Features::ALL,
            host: None,
            max_request_bytes: None,
        },
    );
    text
}
