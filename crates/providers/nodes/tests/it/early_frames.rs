//! Rule: frames before the hello are skipped, for as long as a node may take to send its hello.

use std::sync::Arc;
use std::time::Duration;

use axum::Router as Routes;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use sa_core::audit::NoJournal;
use sa_core::{Directory, Grant, Notices, Policy, Router, RouterOptions};
use sa_nodes::{Admission, NodeOptions, Nodes};
use sa_protocol::close;
use sa_socket::{Liveness, SocketLimits, Upgrade};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

/// The timeout for the hello. It never passes by itself in a test.
const HOUR: Duration = Duration::from_secs(3_600);
const NEARLY_AN_HOUR: Duration = Duration::from_secs(59 * 60);
const MINUTE: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<TcpStream>;

/// Returns the address of a server for nodes.
async fn serve() -> String {
    let options = NodeOptions {
        hello_timeout: HOUR,
        liveness: Liveness { ping_every: 2 * HOUR, dead_after: 2 * HOUR },
        max_pending: 1,
        max_frame_bytes: 1 << 20,
        max_outbox_bytes: 1 << 20,
        outboxes_bytes: 1 << 20,
        max_tools: 10,
        hello_bytes: 1 << 20,
        message_bytes: 1 << 20,
        primary: None,
        gateway_version: "0",
    };
    let router = Router::new(
        Directory::new(Notices::new(), HOUR),
        Arc::new(NoJournal),
        None,
        Policy::default(),
        RouterOptions::default(),
    );
    let nodes = Nodes::new(router, options, CancellationToken::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = Routes::new().route("/", get(upgrade)).with_state(nodes);
    tokio::spawn(async { axum::serve(listener, routes).await.unwrap() });
    address
}

async fn upgrade(State(nodes): State<Arc<Nodes>>, upgrade: Upgrade) -> Response {
    let admission = Admission {
        grant: Grant::token("t"),
        bound_id: None,
        remote: "here".into(),
        revoked: CancellationToken::new(),
        suspended: CancellationToken::new(),
    };
    let limits = SocketLimits { max_message_bytes: 1 << 20, cuts: false, budget: None };
    upgrade.serve(limits, move |socket| nodes.serve(socket, admission))
}

async fn connect() -> Socket {
    let address = serve().await;
    let stream = TcpStream::connect(&address).await.unwrap();
    client_async(format!("ws://{address}/"), stream).await.unwrap().0
}

/// Sends frames that are not a hello, and waits until the server has read them.
async fn send(socket: &mut Socket, frames: Vec<Message>) {
    for frame in frames {
        socket.send(frame).await.unwrap();
    }
    socket.send(Message::Ping(Vec::new().into())).await.unwrap();
    assert!(matches!(next(socket).await, Message::Pong(_)));
}

fn early() -> Vec<Message> {
    let response = json!({ "type": "tool_response", "request_id": "1", "ok": true, "result": 1 });
    vec![
        Message::text(r#"{"type":"ping","timestamp":1}"#),
        Message::text(response.to_string()),
        Message::text("nonsense"),
        Message::binary(vec![1]),
    ]
}

async fn next(socket: &mut Socket) -> Message {
    let next = tokio::time::timeout(MINUTE, socket.next()).await;
    next.expect("no frame arrived").expect("the connection ended").unwrap()
}

/// Moves the clock, which stands still only meanwhile: an idle runtime would move it further.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Checks the reason for which a node is closed that sends these frames, but no hello.
async fn check_late(frames: impl Fn() -> Vec<Message>, expected: &str) {
    let mut socket = connect().await;
    send(&mut socket, frames()).await;
    pass(NEARLY_AN_HOUR).await;
    // No frame restarts the timeout.
    send(&mut socket, frames()).await;
    pass(MINUTE).await;
    let Message::Close(Some(frame)) = next(&mut socket).await else { panic!("expected a close") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (close::HELLO_TOO_LATE, expected));
}

#[tokio::test]
async fn a_hello_is_accepted_until_the_timeout_whatever_came_before_it() {
    let mut socket = connect().await;
    send(&mut socket, early()).await;
    pass(NEARLY_AN_HOUR).await;
    send(&mut socket, early()).await;
    let node = json!({ "id": "n", "name": "N", "node_type": "t", "version": "1" });
    let hello =
        json!({ "type": "node_hello", "protocol_version": 1, "node": node, "capabilities": ["a"] });
    socket.send(Message::text(hello.to_string())).await.unwrap();
    let welcome: Value = serde_json::from_str(next(&mut socket).await.to_text().unwrap()).unwrap();
    assert_eq!(welcome["type"], "gateway_welcome", "no frame before the hello is answered");
}

#[tokio::test]
async fn without_a_hello_the_connection_ends_after_the_timeout() {
    check_late(Vec::new, "no node_hello was received in time").await;
    let skipped = "no node_hello was received in time; 8 other frames were skipped";
    check_late(early, skipped).await;
}
