//! Connects to a gateway and performs the handshake.

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
    /// The size limits of the gateway.
    pub(crate) limits: Limits,
}

/// The time limit for opening the connection, and again for the welcome.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a message that is read.
///
/// A request above the node's own limit is still read up to this size, so that it can be answered.
/// Closing the connection instead would end every other call as well. The value is four times the
/// default limit of a gateway. A larger message cannot come from a caller, and ends the connection
/// before memory is spent on it. It cannot depend on the welcome, because the WebSocket library
/// fixes its limits when it connects.
const MAX_READ_BYTES: usize = 64 << 20;

pub(crate) async fn open<N: Network>(
    network: &N,
    config: &Config,
    registry: &ToolRegistry,
) -> Result<Welcomed<N::Stream>, NodeSdkError> {
    let mut socket = reach(network, config).await?;
    let (features, stated) =
        tokio::time::timeout(STEP_TIMEOUT, handshake(&mut socket, config, registry))
            .await
            .unwrap_or_else(|_| {
                Err(NodeSdkError::Handshake(
                    "no gateway_welcome was received within 10 seconds".to_owned(),
                ))
            })?;
    tracing::info!(url = shown(&config.url), node = config.node.id, "connected to the gateway");
    Ok(Welcomed { socket, features, limits: limits(config, stated) })
}

/// Returns the response limits. A gateway that announces a frame limit accepts results up to it;
/// for others, only the limit that every gateway supports is safe.
fn limits(config: &Config, max_frame: Option<usize>) -> Limits {
    let most = if max_frame.is_some() { usize::MAX } else { MAX_TOOL_RESPONSE_BYTES };
    Limits { payload: config.max_response_bytes.min(most), frame: max_frame.unwrap_or(usize::MAX) }
}

/// Opens a WebSocket on which no frame has been sent yet.
pub(crate) async fn reach<N: Network>(
    network: &N,
    config: &Config,
) -> Result<Socket<N::Stream>, NodeSdkError> {
    let opened = tokio::time::timeout(STEP_TIMEOUT, upgrade(network, config)).await;
    opened.unwrap_or_else(|_| Err(connect_error(config, "no answer within 10 seconds")))
}

async fn upgrade<N: Network>(
    network: &N,
    config: &Config,
) -> Result<Socket<N::Stream>, NodeSdkError> {
    let url = with_credentials(&config.url, &config.token, &config.node.id);
    let request =
        url.as_str().into_client_request().map_err(|error| upgrade_error(config, error))?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = network
        .dial(host, port)
        .await
        .map_err(|error| connect_error(config, &error.to_string()))?;
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
                let (code, reason) =
                    frame.map_or((1005, String::new()), |f| (f.code.into(), f.reason.to_string()));
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
                    tracing::warn!(
                        node = config.node.id,
                        notice = config.token.redact(notice),
                        "notice from the gateway"
                    );
                }
                let stated = welcome.max_frame_bytes.and_then(|bytes| usize::try_from(bytes).ok());
                return Ok((welcome.features, stated));
            }
            Ok(Incoming::Welcome(welcome)) => {
                let reason = format!("it uses version {}", welcome.protocol_version);
                close::close(socket, None).await;
                return Err(NodeSdkError::ProtocolMismatch { reason });
            }
            Ok(Incoming::Ping(timestamp)) => {
                let mut pong = String::new();
                encode_pong(&mut pong, timestamp);
                socket.send(Message::text(pong)).await.map_err(lost)?;
            }
            Ok(_) => tracing::debug!("ignored a frame before the welcome"),
            Err(error) => tracing::warn!(%error, "ignored an invalid frame"),
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

/// Returns the readable text of a gateway's problem document (RFC 9457), and any other text
/// unchanged.
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
        empty if empty.is_empty() => {
            status.canonical_reason().unwrap_or("no reason given").to_owned()
        }
        body => body,
    };
    match status.as_u16() {
        status @ (401 | 403) => NodeSdkError::Unauthorized { status, reason },
        // A gateway's own 404 already contains the path.
        404 if !reason.contains(crate::url::PATH) => connect_error(
            config,
            &format!("HTTP 404: {reason}; nodes connect to {}", crate::url::PATH),
        ),
        status => connect_error(config, &format!("HTTP {status}: {reason}")),
    }
}
