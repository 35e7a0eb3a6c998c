//! The numbers and names that the protocol's documentation promises to authors of nodes. Changing
//! any of them affects every existing node, and must be repeated here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

// All exports of the crate's root, and the whole protocol.
use sa_node_sdk::{
    ErrorKind, MAX_TOOL_RESPONSE_BYTES, NodeClient, NodeClientBuilder, NodeInfo, NodeSdkError,
    NodeTool, PROTOCOL_VERSION, ReconnectBackoff, ToolContext, ToolError, ToolRegistry,
    ToolResponseError, ToolResult, WsMessage, protocol,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Attempt, Gateway, Memory, Node, Peer, gate, registry, soon};

/// The smallest possible tool: one method.
struct Smallest;

#[async_trait::async_trait]
impl NodeTool for Smallest {
    async fn call(&self, _ctx: ToolContext, _args: serde_json::Value) -> ToolResult {
        Ok(json!({ "pong": true }))
    }
}

fn smallest() -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    registry.register("mine.ping", Smallest);
    registry.derive_capabilities_from_tools();
    registry
}

/// Runs a node against a gateway in memory.
fn run(builder: NodeClientBuilder, network: Memory) -> Node {
    let shutdown = CancellationToken::new();
    let run = builder.build().unwrap().run_over(network, smallest(), shutdown.clone());
    Node { handle: tokio::spawn(run), shutdown }
}

async fn next(attempts: &mut mpsc::UnboundedReceiver<Attempt>) -> Attempt {
    attempts.recv().await.expect("the node is gone")
}

#[test]
fn constants() {
    assert_eq!(PROTOCOL_VERSION, 1);
    assert_eq!(MAX_TOOL_RESPONSE_BYTES, 4_194_304);
    let ReconnectBackoff { initial_delay, max_delay, backoff_factor, max_attempts } =
        ReconnectBackoff::default();
    assert_eq!((initial_delay, max_delay), (Duration::from_secs(1), Duration::from_secs(60)));
    assert!((backoff_factor - 2.0).abs() < f64::EPSILON);
    assert_eq!(max_attempts, 0);
}

/// The names of the root are the protocol's own types, and not others of the same form.
#[test]
fn re_exports() {
    fn same<T>(_: Option<T>, _: Option<T>) {}
    same(None::<NodeInfo>, None::<protocol::NodeInfo>);
    same(None::<WsMessage>, None::<protocol::WsMessage>);
    same(None::<ErrorKind>, None::<protocol::ErrorKind>);
    same(None::<ToolResponseError>, None::<protocol::ToolResponseError>);
    same(None::<ReconnectBackoff>, None::<protocol::ReconnectBackoff>);
    assert_eq!(protocol::validate_capability("mine.notes.search"), Ok(()));
    for name in ["", "a b", "a..b", ".a", "a."] {
        assert!(protocol::validate_capability(name).is_err(), "{name:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_a_node_is_and_whom_it_asks_unless_told() {
    let (network, mut attempts) = Memory::there();
    let node = run(NodeClientBuilder::new(), network);
    let attempt = next(&mut attempts).await;
    assert_eq!((attempt.host.as_str(), attempt.port), ("localhost", 3210));
    let mut peer = Peer::accept(attempt.stream.unwrap()).await;
    assert_eq!(peer.uri, "/v1/nodes/ws?node_id=unnamed-node");
    let hello = peer.welcome(&[]).await;
    assert_eq!(hello["protocol_version"], 1);
    assert_eq!(
        hello["node"],
        json!({ "id": "unnamed-node", "name": "unnamed-node", "node_type": "generic", "version": "0.1.0" })
    );
    assert_eq!(hello["capabilities"], json!(["mine"]));
    assert_eq!(hello["max_request_bytes"], 262_144);
    node.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_ping_every_30_seconds_unless_told() {
    for (told, expected) in [(None, 30), (Some(7), 7)] {
        let (network, mut attempts) = Memory::there();
        let mut builder = NodeClient::builder();
        if let Some(seconds) = told {
            builder = builder.heartbeat_interval(Duration::from_secs(seconds));
        }
        let node = run(builder, network);
        let mut peer = Peer::accept(next(&mut attempts).await.stream.unwrap()).await;
        peer.welcome(&[]).await;
        for _ in 0..3 {
            let before = Instant::now();
            let ping: Value = serde_json::from_str(&peer.recv_some_time().await).unwrap();
            assert_eq!((&ping["type"], ping["timestamp"].is_i64()), (&json!("ping"), true));
            assert_eq!(before.elapsed(), Duration::from_secs(expected));
            peer.send(json!({ "type": "pong", "timestamp": ping["timestamp"] })).await;
        }
        node.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_welcome_is_waited_for_for_10_seconds_and_then_the_node_tries_again() {
    let (network, mut attempts) = Memory::there();
    let node = run(NodeClientBuilder::new(), network);
    let mut first = Peer::accept(next(&mut attempts).await.stream.unwrap()).await;
    let hello_at = Instant::now();
    assert_eq!(first.recv().await["type"], "node_hello");
    // A frame that is not a welcome does not extend the timeout.
    first.send(json!({ "type": "news" })).await;
    let second = next(&mut attempts).await;
    assert_eq!(second.at - hello_at, Duration::from_secs(10 + 1), "the wait, and the first delay");
    // A connection that is not even upgraded within the same time is given up, too.
    let third = next(&mut attempts).await;
    assert_eq!(third.at - second.at, Duration::from_secs(10 + 2), "the wait, and the second delay");
    node.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_welcome_uses_up_an_attempt() {
    let (network, mut attempts) = Memory::there();
    let backoff = ReconnectBackoff { max_attempts: 1, ..ReconnectBackoff::default() };
    let node = run(NodeClientBuilder::new().reconnect_backoff(backoff), network);
    let _silent = Peer::accept(next(&mut attempts).await.stream.unwrap()).await;
    let error = node.handle.await.unwrap().unwrap_err();
    assert!(matches!(error, NodeSdkError::ReconnectExhausted(1)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn delays_double_up_to_a_minute_with_up_to_a_quarter_of_jitter_for_ever() {
    for (jitter, delays) in [
        (0.0, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
        (1.0, [1_250, 2_500, 5_000, 10_000, 20_000, 40_000, 75_000, 75_000]),
    ] {
        let (network, mut attempts) = Memory::away(jitter);
        let node = run(NodeClientBuilder::new(), network);
        let mut before = next(&mut attempts).await.at;
        for delay in delays {
            let attempt = next(&mut attempts).await;
            assert_eq!((attempt.at - before).as_millis(), delay);
            before = attempt.at;
        }
        node.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_it_says_to_wait_it_waits() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(Writer(Arc::clone(&log))).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let (network, mut attempts) = Memory::away(0.4);
    let node = run(NodeClientBuilder::new(), network);
    let mut before = next(&mut attempts).await.at;
    for waited in ["1.1s", "2.2s", "4.4s"] {
        let said = format!("reconnecting in {waited}");
        let attempt = next(&mut attempts).await;
        assert_eq!(format!("{:.1?}", attempt.at - before), waited);
        let log = String::from_utf8(log.lock().clone()).unwrap();
        assert!(log.contains(&said), "{log}");
        before = attempt.at;
    }
    node.shut_down().await;
}

/// The destination of a node's log.
struct Writer(Arc<Mutex<Vec<u8>>>);

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn sixteen_tools_run_at_once_unless_told() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(NodeClientBuilder::new().gateway_ws_url(&gateway.url), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    for number in 0..17 {
        peer.request(&number.to_string(), "t.gate", Value::Null).await;
    }
    for _ in 0..16 {
        soon(gate.started.recv()).await;
    }
    // The pong arrives after the seventeenth request was received.
    peer.send(json!({ "type": "ping", "timestamp": 1 })).await;
    assert_eq!(peer.recv().await["type"], "pong");
    assert!(gate.started.try_recv().is_err());
    node.shut_down().await;
}

#[tokio::test]
async fn requests_of_256_kb_and_results_of_1_mb_unless_told() {
    let gateway = Gateway::start().await;
    let registry = registry("t.size", |_, args: Value| async move {
        Ok(match args.as_u64() {
            Some(size) => json!("x".repeat(usize::try_from(size).unwrap() - 2)),
            None => json!("taken"),
        })
    });
    let node = Node::start(NodeClientBuilder::new().gateway_ws_url(&gateway.url), registry);
    let mut peer = gateway.welcome(&[]).await;
    let around =
        json!({"type":"tool_request","request_id":"r","tool":"t.size","args":""}).to_string().len();
    for (size, kind) in [(262_144, None), (262_145, Some("invalid_args"))] {
        peer.request("r", "t.size", json!("x".repeat(size - around))).await;
        assert_eq!(peer.recv().await["error"]["kind"].as_str(), kind, "{size}");
    }
    for (size, cut) in [(1_048_576, false), (1_048_577, true)] {
        peer.request("r", "t.size", json!(size)).await;
        let result = peer.recv().await["result"].take();
        assert_eq!(result["_truncated"] == true, cut, "{size}");
        if cut {
            assert_eq!(result["_original_bytes"], size);
        } else {
            assert_eq!(result.to_string().len(), size);
        }
    }
    node.shut_down().await;
}

/// An error as the tool creates it, as the protocol defines it, and as it is written.
type Failure = (fn(String) -> ToolError, ErrorKind, &'static str);

#[tokio::test]
async fn the_six_kinds_of_failure() {
    let failures: [Failure; 6] = [
        (ToolError::InvalidArgs, ErrorKind::InvalidArgs, "invalid_args"),
        (ToolError::NotAllowed, ErrorKind::NotAllowed, "not_allowed"),
        (ToolError::Failed, ErrorKind::Failed, "failed"),
        (ToolError::Timeout, ErrorKind::Timeout, "timeout"),
        (ToolError::Cancelled, ErrorKind::Cancelled, "cancelled"),
        (ToolError::NotFound, ErrorKind::NotFound, "not_found"),
    ];
    let gateway = Gateway::start().await;
    let registry = registry("t.fail", move |_, args: Value| async move {
        let (error, ..) = failures[usize::try_from(args.as_u64().unwrap()).unwrap()];
        Err(error("the words".to_owned()))
    });
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&[]).await;
    for (number, (_, kind, name)) in failures.into_iter().enumerate() {
        peer.request("r", "t.fail", json!(number)).await;
        assert_eq!(
            peer.recv().await,
            json!({"type":"tool_response","request_id":"r","ok":false,"error":{"kind":name,"message":"the words"}})
        );
        assert_eq!(serde_json::to_value(kind).unwrap(), name);
        assert_eq!(serde_json::from_value::<ErrorKind>(json!(name)).unwrap(), kind);
        let error = ToolResponseError { kind, message: "the words".to_owned() };
        assert_eq!(
            serde_json::to_value(&error).unwrap(),
            json!({ "kind": name, "message": "the words" })
        );
    }
    node.shut_down().await;
}

#[test]
fn a_registry_takes_tools_of_any_making() {
    let mut registry = ToolRegistry::with_defaults("mine");
    let handler: Arc<dyn NodeTool> = Arc::new(Smallest);
    registry
        .register_boxed("Mine.Notes.Search", Arc::clone(&handler))
        .register("mine.clipboard.get", Smallest);
    assert_eq!(registry.capabilities(), ["mine"]);
    registry.add_capability_prefix("mine.notes").derive_capabilities_from_tools();
    let (names, capabilities): (Vec<String>, Vec<String>) =
        (registry.tool_names(), registry.capabilities());
    assert_eq!(names, ["mine.clipboard.get", "mine.notes.search"]);
    assert_eq!(capabilities, ["mine", "mine.clipboard", "mine.notes"]);
    let found: Option<Arc<dyn NodeTool>> = registry.get("MINE.notes.SEARCH");
    assert!(Arc::ptr_eq(&found.unwrap(), &handler));
    assert!(registry.get("mine.notes").is_none());
}

/// Each method of the builder affects the data that the gateway receives.
#[tokio::test]
async fn a_builder_with_all_of_its_methods() {
    let gateway = Gateway::start().await;
    let info = NodeInfo {
        id: "from-info".to_owned(),
        name: "From info".to_owned(),
        node_type: "macos".to_owned(),
        version: "9.9.9".to_owned(),
        tags: vec!["home".to_owned()],
    };
    let client: Result<NodeClient, NodeSdkError> = NodeClientBuilder::new()
        .node_info(info)
        .node_id("mac-01")
        .name("Mac")
        .node_type("linux")
        .version("0.2.0")
        .tags(vec!["office".to_owned()])
        .gateway_ws_url(gateway.url.as_str())
        .token("secret")
        .heartbeat_interval(Duration::from_secs(30))
        .reconnect_backoff(ReconnectBackoff {
            initial_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
            backoff_factor: 1.5,
            max_attempts: 10,
        })
        .max_concurrent_tools(16)
        .max_request_bytes(1000)
        .max_response_bytes(1000)
        .build();
    let shutdown = CancellationToken::new();
    let handle: JoinHandle<Result<(), NodeSdkError>> =
        client.unwrap().spawn(smallest(), shutdown.clone());
    let mut peer = gateway.upgrade().await;
    assert_eq!(peer.uri, "/v1/nodes/ws?token=secret&node_id=mac-01");
    let hello = peer.welcome(&[]).await;
    let node: NodeInfo = serde_json::from_value(hello["node"].clone()).unwrap();
    assert_eq!(
        (node.id.as_str(), node.name.as_str(), node.node_type.as_str()),
        ("mac-01", "Mac", "linux")
    );
    assert_eq!((node.version.as_str(), node.tags), ("0.2.0", vec!["office".to_owned()]));
    assert_eq!(hello["max_request_bytes"], 1000);
    shutdown.cancel();
    assert!(matches!(soon(handle).await.unwrap(), Err(NodeSdkError::Shutdown)));
    for no_certificate in
        ["no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let unusable = NodeClient::builder().ca_pem(no_certificate).build();
        assert!(matches!(unusable, Err(NodeSdkError::Config(_))), "{no_certificate}");
    }
    let empty = NodeClient::builder().gateway_ws_url("").build();
    assert!(matches!(empty, Err(NodeSdkError::Config(_))));
}

/// The six frames, as plain data.
#[test]
fn frames() {
    let node = NodeInfo {
        id: "n".to_owned(),
        name: "N".to_owned(),
        node_type: "linux".to_owned(),
        version: "1.0.0".to_owned(),
        tags: Vec::new(),
    };
    let check = |frame: WsMessage, json: Value| {
        assert_eq!(serde_json::to_value(&frame).unwrap(), json);
        assert_eq!(serde_json::from_value::<WsMessage>(json).unwrap(), frame);
    };
    check(
        WsMessage::NodeHello { protocol_version: 1, node, capabilities: vec!["n".to_owned()] },
        json!({"type":"node_hello","protocol_version":1,"capabilities":["n"],
               "node":{"id":"n","name":"N","node_type":"linux","version":"1.0.0"}}),
    );
    check(
        WsMessage::GatewayWelcome { protocol_version: 1, gateway_version: "0.5.0".to_owned() },
        json!({"type":"gateway_welcome","protocol_version":1,"gateway_version":"0.5.0"}),
    );
    let request = |session_key| WsMessage::ToolRequest {
        request_id: "r".to_owned(),
        tool: "n.t".to_owned(),
        args: json!({ "a": 1 }),
        session_key,
    };
    check(
        request(None),
        json!({"type":"tool_request","request_id":"r","tool":"n.t","args":{"a":1}}),
    );
    check(
        request(Some("s".to_owned())),
        json!({"type":"tool_request","request_id":"r","tool":"n.t","args":{"a":1},"session_key":"s"}),
    );
    let response = |result, error: Option<ToolResponseError>| WsMessage::ToolResponse {
        request_id: "r".to_owned(),
        ok: error.is_none(),
        result,
        error,
    };
    check(
        response(Some(json!(3)), None),
        json!({"type":"tool_response","request_id":"r","ok":true,"result":3}),
    );
    check(
        response(
            None,
            Some(ToolResponseError { kind: ErrorKind::NotAllowed, message: "no".to_owned() }),
        ),
        json!({"type":"tool_response","request_id":"r","ok":false,"error":{"kind":"not_allowed","message":"no"}}),
    );
    check(WsMessage::Ping { timestamp: 5 }, json!({"type":"ping","timestamp":5}));
    check(WsMessage::Pong { timestamp: 5 }, json!({"type":"pong","timestamp":5}));
}

/// Programs written for the first version of this crate use these names.
#[test]
fn the_errors_of_the_first_version_are_there() {
    fn own() -> Result<(), NodeSdkError> {
        Err(anyhow::anyhow!("something of the program's own"))?;
        Ok(())
    }
    let of = |error: &NodeSdkError| match error {
        NodeSdkError::Config(_) => "config",
        NodeSdkError::WebSocket(_) => "websocket",
        NodeSdkError::Handshake(_) => "handshake",
        NodeSdkError::ReconnectExhausted(_) => "exhausted",
        NodeSdkError::Shutdown => "shutdown",
        NodeSdkError::Other(_) => "other",
        _ => "new",
    };
    assert_eq!(of(&own().unwrap_err()), "other");
    assert_eq!(own().unwrap_err().to_string(), "something of the program's own");
    assert_eq!(of(&NodeSdkError::ReconnectExhausted(3)), "exhausted");
    assert_eq!(of(&NodeClientBuilder::new().gateway_ws_url("").build().unwrap_err()), "config");
    let backoff = ReconnectBackoff { max_attempts: 2, ..ReconnectBackoff::default() };
    assert!(
        backoff.delay_for_attempt(1) > backoff.delay_for_attempt(0) && backoff.should_give_up(2)
    );
}
