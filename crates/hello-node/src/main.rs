//! The node protocol without the SDK, small enough to read in one go.
//!
//! This node offers `node.ping`, `node.echo` and `node.fs.read_text`. It shows every frame that a
//! node must know. It connects with its token in the URL, sends the hello, waits for the welcome,
//! pings every 30 seconds, answers pings, and answers each request once. A node for daily use also
//! reconnects, limits running tools, cancels calls and reports progress: `sa-node-sdk` does all of
//! that. When its connection ends, this node exits with a message and code 1.
//!
//! ```text
//! SA_NODE_TOKEN=… SA_ALLOWED_DIR=/srv/texts sa-hello-node [ws://localhost:3210/v1/nodes/ws]
//! ```
//!
//! An address without a path, such as `ws://localhost:3210`, means the same.
//!
//! `SA_NODE_ID`, `SA_NODE_NAME` and `SA_NODE_TAGS` set the node's identity. Exit codes: 0 after
//! Ctrl-C or SIGTERM, 1 after an error, 2 if the command line is wrong.

mod files;
mod tools;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sa_protocol::node::{Features, Hello, Incoming, encode_hello, encode_ping, encode_pong};
use sa_protocol::{NodeInfo, PROTOCOL_VERSION};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async_tls};
use url::Url;

use crate::files::AllowedDir;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const DEFAULT_URL: &str = "ws://localhost:3210/v1/nodes/ws";
const USAGE: &str =
    "usage: sa-hello-node [WebSocket URL of the gateway, default: ws://localhost:3210/v1/nodes/ws]";
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The largest frame that the WebSocket library accepts; it closes the connection on a larger one.
/// A gateway that knows the limit refuses such a call, and other calls are unaffected.
const MAX_REQUEST_BYTES: u64 = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| DEFAULT_URL.to_owned());
    if url == "-h" || url == "--help" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if url.starts_with('-') || arguments.next().is_some() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sa-hello-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str) -> Result<()> {
    let info = NodeInfo::from_env("reference", env!("CARGO_PKG_VERSION"));
    let allowed = std::env::var("SA_ALLOWED_DIR").unwrap_or_else(|_| ".".to_owned());
    let allowed = AllowedDir::open(allowed.as_ref()).with_context(|| {
        format!("cannot open SA_ALLOWED_DIR ({allowed}); set it to a readable directory")
    })?;
    let token = std::env::var("SA_NODE_TOKEN").unwrap_or_default();

    let mut stop = pin!(stop_signal()?);

    let id = info.id.clone();
    let connecting = connect_and_shake_hands(url, &token, info);
    let mut socket = tokio::select! {
        socket = connecting => socket?,
        () = &mut stop => return Ok(()),
    };
    let tools: Vec<String> = tools::descriptions().into_iter().map(|tool| tool.name).collect();
    let (tools, folder) = (tools.join(", "), allowed.path().display());
    eprintln!("sa-hello-node: connected as {id} with {tools}; serving {folder}");
    tokio::select! {
        Err(error) = serve(&mut socket, Arc::new(allowed)) => Err(error),
        () = &mut stop => {
            // This code informs the gateway at once that the node stopped on purpose. If the frame
            // is lost, the gateway still detects the closed connection.
            let goodbye = CloseFrame { code: CloseCode::Normal, reason: "the node is shutting down".into() };
            let _ = timeout(Duration::from_secs(1), socket.close(Some(goodbye))).await;
            Ok(())
        }
    }
}

/// Resolves on Ctrl-C and on SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn connect_and_shake_hands(url: &str, token: &str, info: NodeInfo) -> Result<Socket> {
    let mut socket = timeout(TIMEOUT, connect(url, token, &info.id))
        .await
        .context("the gateway did not answer within 10 seconds")??;
    timeout(TIMEOUT, shake_hands(&mut socket, info))
        .await
        .context("the gateway sent no gateway_welcome within 10 seconds")??;
    Ok(socket)
}

/// Step 1: connect. The token and the id are query parameters, percent-encoded.
async fn connect(url: &str, token: &str, node_id: &str) -> Result<Socket> {
    const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let mut address = Url::parse(url)
        .with_context(|| format!("`{url}` is not a URL; use a URL like {DEFAULT_URL}"))?;
    // Operators usually know only a gateway's host. Nodes have one path there.
    if address.path() == "/" || address.path().is_empty() {
        address.set_path("/v1/nodes/ws");
    }
    let scheme = match address.scheme() {
        "http" => "ws",
        "https" => "wss",
        scheme => scheme,
    }
    .to_owned();
    let _ = address.set_scheme(&scheme);
    let mut query: Vec<String> = address.query().map(str::to_owned).into_iter().collect();
    if !token.is_empty() {
        query.push(format!("token={}", utf8_percent_encode(token, QUERY)));
    }
    query.push(format!("node_id={}", utf8_percent_encode(node_id, QUERY)));
    address.set_query(Some(&query.join("&")));

    // TLS needs a cryptography provider for the process. This can only fail if a provider is
    // already installed.
    let _ = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().install_default();
    let host = address.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port =
        address.port_or_known_default().context("the URL must start with ws:// or wss://")?;
    let hint =
        || format!("cannot connect to {host}:{port}; check that the gateway is running there");
    let stream = TcpStream::connect((host, port)).await.with_context(hint)?;
    // Frames are small, and the peer waits for each one.
    stream.set_nodelay(true)?;
    match client_async_tls(address.as_str(), stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => {
            let (status, said) =
                (response.status().as_u16(), response.body().as_deref().unwrap_or_default());
            let advice = if status == 401 { "; check SA_NODE_TOKEN" } else { "" };
            bail!("the gateway refused this node (HTTP {status}){}{advice}", reason(said))
        }
        Err(error) => Err(error).with_context(hint),
    }
}

/// Returns the gateway's reason for a refusal. The gateway answers with a problem document, which
/// has a detail and often a hint.
fn reason(body: &[u8]) -> String {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let words =
        |field: &str| problem[field].as_str().unwrap_or_default().escape_debug().to_string();
    match (words("detail"), words("hint")) {
        (detail, _) if detail.is_empty() => String::new(),
        (detail, hint) if hint.is_empty() => format!(": {detail}"),
        (detail, hint) => format!(": {detail} ({hint})"),
    }
}

/// Step 2: send the hello, then wait for the welcome.
async fn shake_hands(socket: &mut Socket, node: NodeInfo) -> Result<()> {
    let mut hello = String::new();
    encode_hello(
        &mut hello,
        &Hello {
            protocol_version: PROTOCOL_VERSION,
            node,
            capabilities: vec!["node".to_owned()],
            tools: tools::descriptions(),
            features: Features::default(),
            host: None,
            max_request_bytes: Some(MAX_REQUEST_BYTES),
        },
    );
    socket.send(Message::text(hello)).await?;
    loop {
        let Some(text) = receive(socket.next().await)? else {
            continue;
        };
        match Incoming::decode(&text) {
            Ok(Incoming::Welcome(welcome)) if welcome.protocol_version == PROTOCOL_VERSION => {
                return Ok(());
            }
            Ok(Incoming::Welcome(welcome)) => bail!(
                "the gateway uses protocol version {}, but this node uses {PROTOCOL_VERSION}; update the older one",
                welcome.protocol_version
            ),
            // Other frames are ignored before the welcome.
            _ => {}
        }
    }
}

/// Step 3: answer requests and pings, and send pings.
async fn serve(socket: &mut Socket, allowed: Arc<AllowedDir>) -> Result<()> {
    let (answers, mut outbox) = mpsc::channel::<String>(64);
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        let outgoing = tokio::select! {
            frame = socket.next() => {
                let Some(text) = receive(frame)? else { continue };
                match Incoming::decode(&text) {
                    Ok(Incoming::Request(request)) => {
                        let answer = tools::prepare(&request);
                        let (answers, allowed) = (answers.clone(), Arc::clone(&allowed));
                        // Reading files blocks, so it runs on the blocking thread pool. If the send
                        // fails, the connection is closed and no caller waits.
                        tokio::task::spawn_blocking(move || answers.blocking_send(answer.run(&allowed)));
                        continue;
                    }
                    Ok(Incoming::Ping(timestamp)) => {
                        let mut pong = String::new();
                        encode_pong(&mut pong, timestamp);
                        pong
                    }
                    // Unknown frames are ignored, so that a newer gateway works with this node.
                    Ok(_) => continue,
                    Err(error) => {
                        eprintln!("sa-hello-node: ignored an invalid frame: {error}");
                        match tools::unreadable(&error) {
                            Some(answer) => answer,
                            None => continue,
                        }
                    }
                }
            }
            Some(answer) = outbox.recv() => answer,
            _ = heartbeat.tick() => {
                let mut ping = String::new();
                encode_ping(&mut ping, now_ms());
                ping
            }
        };
        socket.send(Message::text(outgoing)).await.context("the connection was lost")?;
    }
}

/// Returns the text of the next frame, if it has any.
fn receive(frame: Option<Result<Message, Error>>) -> Result<Option<Utf8Bytes>> {
    match frame.context("the gateway closed the connection")?.context("the connection was lost")? {
        Message::Text(text) => Ok(Some(text)),
        Message::Close(Some(frame)) => {
            bail!("the gateway closed the connection (code {}): {}", frame.code, frame.reason)
        }
        _ => Ok(None),
    }
}

/// Returns the current time in milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a ping carries the wall clock's time")]
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
