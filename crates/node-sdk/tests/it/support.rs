//! A scripted gateway, and tools that report their progress to the test.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use sa_node_sdk::*;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};
use tokio_util::sync::CancellationToken;

/// Waits for a future. The timeout only keeps a broken test from hanging forever.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("this never happened")
}

pub(crate) struct Gateway {
    listener: TcpListener,
    pub(crate) url: String,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/v1/nodes/ws", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// Returns a builder for a node that connects to this gateway and reconnects almost at once.
    pub(crate) fn builder(&self) -> NodeClientBuilder {
        NodeClient::builder().gateway_ws_url(&self.url).node_id("n1").reconnect_backoff(
            ReconnectBackoff {
                initial_delay: Duration::from_millis(1),
                max_delay: Duration::from_millis(5),
                ..ReconnectBackoff::default()
            },
        )
    }

    /// Accepts a connection on which nothing has been sent.
    pub(crate) async fn tcp(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// Answers the upgrade with an error.
    pub(crate) async fn refuse(&self, status: &str, body: &str) {
        let mut stream = self.tcp().await;
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    /// Accepts a WebSocket on which the gateway has sent nothing.
    pub(crate) async fn upgrade(&self) -> Peer {
        Peer::accept(self.tcp().await).await
    }

    /// Accepts a node and welcomes it with these features.
    pub(crate) async fn welcome(&self, features: &[&str]) -> Peer {
        let mut peer = self.upgrade().await;
        peer.welcome(features).await;
        peer
    }
}

/// A gateway in memory, for tests of long delays. Without external events, a paused clock advances
/// to the next timer, so a test can measure exact durations.
pub(crate) struct Memory {
    attempts: mpsc::UnboundedSender<Attempt>,
    answers: bool,
    jitter: f64,
}

/// A node's attempt to connect.
pub(crate) struct Attempt {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) at: Instant,
    /// The gateway's end, if there is one.
    pub(crate) stream: Option<DuplexStream>,
}

impl Memory {
    /// Creates a gateway that accepts connections.
    pub(crate) fn there() -> (Self, mpsc::UnboundedReceiver<Attempt>) {
        Self::new(true, 0.0)
    }

    /// Creates an unreachable gateway, for a node with this jitter.
    pub(crate) fn away(jitter: f64) -> (Self, mpsc::UnboundedReceiver<Attempt>) {
        Self::new(false, jitter)
    }

    fn new(answers: bool, jitter: f64) -> (Self, mpsc::UnboundedReceiver<Attempt>) {
        let (attempts, seen) = mpsc::unbounded_channel();
        (Self { attempts, answers, jitter }, seen)
    }
}

impl Network for Memory {
    type Stream = DuplexStream;

    async fn dial(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let stream = self.answers.then_some(theirs);
        let _ =
            self.attempts.send(Attempt { host: host.to_owned(), port, at: Instant::now(), stream });
        self.answers.then_some(ours).ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    fn jitter(&self) -> f64 {
        self.jitter
    }
}

pub(crate) struct Peer<S = TcpStream> {
    socket: WebSocketStream<S>,
    pub(crate) uri: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Answers the upgrade, and sends nothing else.
    #[allow(clippy::result_large_err)] // The library's callback has this type.
    pub(crate) async fn accept(stream: S) -> Self {
        let mut uri = String::new();
        let keep_uri = |request: &Request, response: Response| {
            uri = request.uri().to_string();
            Ok(response)
        };
        let socket = soon(accept_hdr_async(stream, keep_uri)).await.unwrap();
        Self { socket, uri }
    }

    /// Receives the node's hello, sends a welcome with these features, and returns the hello.
    pub(crate) async fn welcome(&mut self, features: &[&str]) -> Value {
        let hello = self.recv().await;
        assert_eq!(hello["type"], "node_hello");
        let mut welcome =
            json!({"type":"gateway_welcome","protocol_version":1,"gateway_version":"test"});
        if !features.is_empty() {
            welcome["features"] = json!(features);
        }
        self.send(welcome).await;
        hello
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends raw bytes that need not be a valid frame.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).await.unwrap();
    }

    pub(crate) async fn request(&mut self, id: &str, tool: &str, args: Value) {
        self.send(json!({"type":"tool_request","request_id":id,"tool":tool,"args":args})).await;
    }

    /// Returns the next frame of the node.
    pub(crate) async fn recv(&mut self) -> Value {
        serde_json::from_str(&self.recv_text().await).unwrap()
    }

    pub(crate) async fn recv_text(&mut self) -> String {
        soon(self.recv_some_time()).await
    }

    /// Returns the next frame, without a timeout.
    pub(crate) async fn recv_some_time(&mut self) -> String {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => text.to_string(),
            other => panic!("expected a text frame, got {other:?}"),
        }
    }

    /// Waits for the node's close.
    pub(crate) async fn recv_close(&mut self) -> Option<CloseFrame> {
        loop {
            match soon(self.socket.next()).await {
                Some(Ok(Message::Close(frame))) => return frame,
                Some(Ok(_)) => {}
                other => panic!("expected a close, got {other:?}"),
            }
        }
    }

    pub(crate) async fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.socket.send(Message::Close(Some(frame))).await.unwrap();
        while let Some(Ok(_)) = soon(self.socket.next()).await {}
    }
}

/// A running node.
pub(crate) struct Node {
    pub(crate) handle: JoinHandle<Result<(), NodeSdkError>>,
    pub(crate) shutdown: CancellationToken,
}

impl Node {
    pub(crate) fn start(builder: NodeClientBuilder, registry: ToolRegistry) -> Self {
        let shutdown = CancellationToken::new();
        let handle = builder.build().unwrap().spawn(registry, shutdown.clone());
        Self { handle, shutdown }
    }

    pub(crate) async fn end(self) -> NodeSdkError {
        soon(self.handle).await.unwrap().unwrap_err()
    }

    pub(crate) async fn shut_down(self) {
        self.shutdown.cancel();
        assert!(matches!(self.end().await, NodeSdkError::Shutdown));
    }
}

/// A tool made of a closure.
pub(crate) struct Tool<F>(pub(crate) F);

#[async_trait::async_trait]
impl<F, R> NodeTool for Tool<F>
where
    F: Fn(ToolContext, Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolResult> + Send + 'static,
{
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        (self.0)(ctx, args).await
    }
}

pub(crate) fn registry<F, R>(name: &str, tool: F) -> ToolRegistry
where
    F: Fn(ToolContext, Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolResult> + Send + 'static,
{
    let mut registry = ToolRegistry::new();
    registry.register(name, Tool(tool)).derive_capabilities_from_tools();
    registry
}

pub(crate) fn echo() -> ToolRegistry {
    registry("t.echo", |_, args| async { Ok(args) })
}

/// A tool that waits until the test releases it, and reports its start and its cancellation.
pub(crate) struct Gate {
    pub(crate) registry: ToolRegistry,
    pub(crate) started: mpsc::UnboundedReceiver<String>,
    pub(crate) cancelled: mpsc::UnboundedReceiver<String>,
    pub(crate) go: Arc<Semaphore>,
}

pub(crate) fn gate() -> Gate {
    let go = Arc::new(Semaphore::new(0));
    let (say_started, started) = mpsc::unbounded_channel();
    let (say_cancelled, cancelled) = mpsc::unbounded_channel();
    let tool_go = Arc::clone(&go);
    let registry = registry("t.gate", move |ctx: ToolContext, _| {
        let (go, started, cancelled) =
            (Arc::clone(&tool_go), say_started.clone(), say_cancelled.clone());
        async move {
            let _ = started.send(ctx.request_id.clone());
            tokio::select! {
                permit = go.acquire() => {
                    permit.unwrap().forget();
                    Ok(json!("let go"))
                }
                () = ctx.cancel.cancelled() => {
                    let _ = cancelled.send(ctx.request_id.clone());
                    Err(ToolError::Cancelled("stopped".into()))
                }
            }
        }
    });
    Gate { registry, started, cancelled, go }
}
