//! From nothing to a gateway's welcome.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use sa_protocol::node::{Features, Hello, Incoming, encode_hello, encode_pong};
use sa_protocol::{MAX_TOOL_RESPONSE_BYTES, PROTOCOL_VERSION};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

use crate::builder::Config;
use crate::call::Limits;
use crate::network::{Network, Stream};
use crate::url::{shown, with_credentials};
use crate::{NodeSdkError, ToolRegistry, close, tls};

pub(crate) type Socket<S> = WebSocketStream<MaybeTlsStream<S>>;

/// A connection on which the gateway has welcomed the node.
#[derive(Debug)]
pub(crate) struct Welcomed<S> {
    pub(crate) socket: Socket<S>,
    pub(crate) features: Features,
    /// How much it takes.
    pub(crate) limits: Limits,
}

/// Opening the connection and the welcome may take this long each.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// A request above the node's own limit is still read up to here, so that it can be answered: to hang up on it would end
/// every other call as well. Four times as much as a gateway takes from anybody unless it is told otherwise; what is larger
/// than that is not from a caller, and ends the connection before memory is spent on it. (It cannot wait for what the welcome
/// says: the WebSocket library takes its limits when the connection is made.)
const MAX_READ_BYTES: usize = 64 << 20;

pub(crate) async fn open<N: Network>(
    network: &N,
    config: &Config,
    registry: &ToolRegistry,
) -> Result<Welcomed<N::Stream>, NodeSdkError> {
    let mut socket = reach(network, config).await?;
    let (features, stated) = tokio::time::timeout(STEP_TIMEOUT, handshake(&mut socket, config, registry))
        .await
        .unwrap_or_else(|_| Err(NodeSdkError::Handshake("no gateway_welcome within 10 seconds".to_owned())))?;
    tracing::info!(url = shown(&config.url), node = config.node.id, "connected to the gateway");
    Ok(Welcomed { socket, features, limits: limits(config, stated) })
}

/// A gateway that says how large a frame may be takes results up to that; of another one it is only known how much every
/// gateway takes.
fn limits(config: &Config, max_frame: Option<usize>) -> Limits {
    let most = if max_frame.is_some() { usize::MAX } else { MAX_TOOL_RESPONSE_BYTES };
    Limits { payload: config.max_response_bytes.min(most), frame: max_frame.unwrap_or(usize::MAX) }
}

/// Opens a WebSocket, on which nothing was said yet.
pub(crate) async fn reach<N: Network>(network: &N, config: &Config) -> Result<Socket<N::Stream>, NodeSdkError> {
    let opened = tokio::time::timeout(STEP_TIMEOUT, upgrade(network, config)).await;
    opened.unwrap_or_else(|_| Err(connect_error(config, "no answer within 10 seconds")))
}

async fn upgrade<N: Network>(network: &N, config: &Config) -> Result<Socket<N::Stream>, NodeSdkError> {
    let url = with_credentials(&config.url, &config.token, &config.node.id);
    let request = url.as_str().into_client_request().map_err(|error| upgrade_error(config, error))?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = network.dial(host, port).await.map_err(|error| connect_error(config, &error.to_string()))?;
    let connector = if url.scheme() == "wss" { tls::connector(config)? } else { None };
    let cap = config.max_request_bytes.max(MAX_READ_BYTES);
    let limits = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .write_buffer_size(64 * 1024)
        .max_message_size(Some(cap))
        .max_frame_size(Some(cap));
    let (socket, _) = client_async_tls_with_config(request, stream, Some(limits), connector)
        .await
        .map_err(|error| upgrade_error(config, error))?;
    Ok(socket)
}

async fn handshake<S: Stream>(
    socket: &mut Socket<S>,
    config: &Config,
    registry: &ToolRegistry,
) -> Result<(Features, Option<usize>), NodeSdkError> {
    let lost = |error: Error| NodeSdkError::Handshake(config.token.redact(&error.to_string()));
    socket.send(Message::text(hello(config, registry))).await.map_err(lost)?;
    while let Some(message) = socket.next().await {
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Close(frame)) => {
                let (code, reason) = frame.map_or((1005, String::new()), |f| (f.code.into(), f.reason.to_string()));
                close::answer(socket).await;
                return Err(NodeSdkError::from_close(code, &reason, &config.token));
            }
            Ok(_) => continue,
            Err(error) => {
                close::protest(socket, &error).await;
                return Err(lost(error));
            }
        };
        match Incoming::decode(&text) {
            Ok(Incoming::Welcome(welcome)) if welcome.protocol_version == PROTOCOL_VERSION => {
                if let Some(notice) = &welcome.notice {
                    tracing::warn!(node = config.node.id, notice = config.token.redact(notice), "the gateway's notice");
                }
                let stated = welcome.max_frame_bytes.and_then(|bytes| usize::try_from(bytes).ok());
                return Ok((welcome.features, stated));
            }
            Ok(Incoming::Welcome(welcome)) => {
                let reason = format!("it answered with version {}", welcome.protocol_version);
                close::close(socket, None).await;
                return Err(NodeSdkError::ProtocolMismatch { reason });
            }
            Ok(Incoming::Ping(timestamp)) => {
                let mut pong = String::new();
                encode_pong(&mut pong, timestamp);
                socket.send(Message::text(pong)).await.map_err(lost)?;
            }
            Ok(_) => tracing::debug!("ignored a frame that came before the welcome"),
            Err(error) => tracing::warn!(%error, "ignored a frame"),
        }
    }
    Err(NodeSdkError::Handshake("the gateway closed the connection".to_owned()))
}

fn hello(config: &Config, registry: &ToolRegistry) -> String {
    let mut features = Features::ALL;
    features.bin_probe = config.bin_probe.is_some();
    features.events = config.events.is_some();
    let mut text = String::new();
    encode_hello(
        &mut text,
        &Hello {
            protocol_version: PROTOCOL_VERSION,
            node: config.node.clone(),
            capabilities: registry.capabilities(),
            tools: registry.specs(),
            features,
            host: config.host.as_deref(),
            max_request_bytes: Some(config.max_request_bytes as u64),
        },
    );
    text
}

/// What a gateway's problem (RFC 9457) says to people; any other text as it is.
fn in_words(body: &str) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
        hint: Option<String>,
    }
    match serde_json::from_str(body) {
        Ok(Problem { detail, hint: Some(hint) }) => format!("{detail} ({hint})").into(),
        Ok(Problem { detail, hint: None }) => detail.into(),
        Err(_) => body.into(),
    }
}

pub(crate) fn connect_error(config: &Config, reason: &str) -> NodeSdkError {
    let (url, reason) = (shown(&config.url), config.token.redact(reason));
    NodeSdkError::WebSocket(format!("could not connect to {url}: {reason}"))
}

fn upgrade_error(config: &Config, error: Error) -> NodeSdkError {
    let Error::Http(response) = error else {
        return connect_error(config, &tls::in_words(&error).unwrap_or_else(|| error.to_string()));
    };
    let status = response.status();
    let body = response.body().as_deref().map_or(Cow::Borrowed(""), String::from_utf8_lossy);
    let reason = match config.token.redact(&in_words(&body)) {
        empty if empty.is_empty() => status.canonical_reason().unwrap_or("no reason given").to_owned(),
        body => body,
    };
    match status.as_u16() {
        status @ (401 | 403) => NodeSdkError::Unauthorized { status, reason },
        // A gateway says so itself.
        404 if !reason.contains(crate::url::PATH) => {
            connect_error(config, &format!("HTTP 404: {reason}; nodes connect to {}", crate::url::PATH))
        }
        status => connect_error(config, &format!("HTTP {status}: {reason}")),
    }
}
