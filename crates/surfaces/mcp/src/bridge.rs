//! A stdio MCP server in front of a gateway's `/mcp`, for clients that support only stdio.
//!
//! It forwards messages without inspecting them, so that every revision and every extension works
//! unchanged. rmcp handles the differences between the two transports: sessions, headers, streams,
//! and the cancellation of calls.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ConstString as _, ErrorData,
    InitializedNotification, RequestId, ServerJsonRpcMessage, SubscriptionsListenRequestMethod,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, RoleServer};
use sa_lines::Lines;
use tokio::io::{AsyncRead, AsyncWrite};

/// The time limit for closing the session at the gateway. Without a close, the gateway ends the
/// session itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time to wait for the first request of a client that cannot be served.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why the bridge ended, as a readable message.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The gateway or the client has disconnected.
    #[error("{0}")]
    Broken(String),
    /// The requested resource does not exist.
    #[error("{0}")]
    Unreachable(String),
}

/// Forwards messages between a client on these streams and the gateway at `url`.
///
/// When the client closes its input, its requests are still answered. When `gone` resolves and no
/// client reads the answers, its requests are abandoned. A message that the gateway rejects may be
/// the first sign that the address is wrong. `missing` then returns the reason, and all open
/// requests of the client are answered with it.
pub async fn bridge(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    http: reqwest::Client,
    url: String,
    token: String,
    gone: impl Future<Output = ()>,
    missing: impl AsyncFn() -> Option<String>,
) -> Result<(), BridgeError> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.auth_header = Some(token).filter(|token| !token.is_empty());
    let mut gateway = StreamableHttpClientTransport::with_client(http, config);
    let mut client = Lines::of_client(read, write);
    let mut conversation = Conversation::default();
    let ended = tokio::select! {
        ended = pass(&mut client, &mut gateway, &mut conversation, missing) => ended,
        () = gone => Ok(()),
    };
    // Ends the session, if there is one: before the first message the transport does not handle a
    // close.
    if conversation.started {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, gateway.close()).await;
    }
    ended
}

/// Answers the first request of a client that cannot be served with the reason. The wait for a
/// first request is short.
pub async fn refuse(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    why: &str,
) {
    let mut client = Lines::of_client(read, write);
    let first = async {
        loop {
            if let ClientJsonRpcMessage::Request(request) = client.receive().await? {
                return Some(request.id);
            }
        }
    };
    if let Ok(Some(id)) = tokio::time::timeout(TIMEOUT, first).await {
        let _ = send_to_client(&mut client, unreachable(why, id)).await;
    }
}

fn unreachable(why: &str, request: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::invalid_request(why.to_owned(), None), Some(request))
}

/// The state of the conversation between the client and the gateway.
#[derive(Default)]
struct Conversation {
    started: bool,
    /// `initialize` was sent, and `initialized` was not. The transport expects it as the next
    /// message.
    half_open: bool,
    /// The client's open requests, except those that end only when they are cancelled.
    pending: HashSet<RequestId>,
}

impl Conversation {
    /// Records a message of the client. Returns true if the end of the handshake must be sent
    /// before it.
    fn note(&mut self, message: &ClientJsonRpcMessage) -> bool {
        self.started = true;
        let was_half_open = std::mem::take(&mut self.half_open);
        match message {
            ClientJsonRpcMessage::Request(request) => {
                self.half_open = matches!(request.request, ClientRequest::InitializeRequest(_));
                if request.request.method() != SubscriptionsListenRequestMethod::VALUE {
                    self.pending.insert(request.id.clone());
                }
            }
            ClientJsonRpcMessage::Notification(message) => match &message.notification {
                ClientNotification::InitializedNotification(_) => return false,
                ClientNotification::CancelledNotification(cancelled) => {
                    // A cancelled request gets no answer.
                    cancelled.params.request_id.as_ref().map(|id| self.pending.remove(id));
                }
                _ => {}
            },
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        was_half_open
    }

    fn answered(&mut self, message: &ServerJsonRpcMessage) {
        match message {
            ServerJsonRpcMessage::Response(response) => self.pending.remove(&response.id),
            ServerJsonRpcMessage::Error(error) => {
                error.id.as_ref().is_some_and(|id| self.pending.remove(id))
            }
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
        };
    }
}

async fn pass(
    client: &mut impl Transport<RoleServer>,
    gateway: &mut impl Transport<RoleClient>,
    conversation: &mut Conversation,
    missing: impl AsyncFn() -> Option<String>,
) -> Result<(), BridgeError> {
    let mut sending = FuturesUnordered::new();
    let mut listening = true;
    while listening || !sending.is_empty() || !conversation.pending.is_empty() {
        // The next messages for the gateway.
        let messages = tokio::select! {
            message = client.receive(), if listening => match message {
                Some(message) if conversation.note(&message) => vec![initialized(), message],
                Some(message) => vec![message],
                None => {
                    listening = false;
                    if std::mem::take(&mut conversation.half_open) { vec![initialized()] } else { Vec::new() }
                }
            },
            Some((id, sent)) = sending.next() => {
                let Err(error) = sent else { continue };
                tracing::warn!(%error, "the gateway did not accept a message");
                if let Some(why) = missing().await {
                    conversation.pending.extend(id);
                    for id in conversation.pending.drain() {
                        send_to_client(client, unreachable(&why, id)).await?;
                    }
                    return Err(BridgeError::Unreachable(why));
                }
                // The client waits for an answer only if it sent a request.
                if let Some(id) = id {
                    conversation.pending.remove(&id);
                    let error = ErrorData::internal_error(format!("the gateway did not accept the request: {error}"), None);
                    send_to_client(client, ServerJsonRpcMessage::error(error, Some(id))).await?;
                }
                continue;
            }
            answer = gateway.receive() => {
                let Some(message) = answer else { return Err(BridgeError::Broken("the connection to the gateway ended".into())) };
                conversation.answered(&message);
                match message {
                    // A client that has closed its input cannot answer a question.
                    ServerJsonRpcMessage::Request(question) if !listening => {
                        let error = ErrorData::internal_error("the client has closed its input and cannot answer", None);
                        vec![ClientJsonRpcMessage::error(error, Some(question.id))]
                    }
                    message => {
                        send_to_client(client, message).await?;
                        continue;
                    }
                }
            }
        };
        for message in messages {
            let id = match &message {
                ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
                _ => None,
            };
            let sent = gateway.send(message);
            sending.push(async move { (id, sent.await) });
        }
    }
    Ok(())
}

/// Returns the last message of the handshake, for a client that leaves it out.
fn initialized() -> ClientJsonRpcMessage {
    let message = ClientNotification::InitializedNotification(InitializedNotification::default());
    ClientJsonRpcMessage::notification(message)
}

async fn send_to_client(
    client: &mut impl Transport<RoleServer>,
    message: ServerJsonRpcMessage,
) -> Result<(), BridgeError> {
    client
        .send(message)
        .await
        .map_err(|error| BridgeError::Broken(format!("cannot write to the client: {error}")))
}
