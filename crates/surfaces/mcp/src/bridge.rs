//! A stdio MCP server in front of a gateway's `/mcp`, for clients that know nothing else.
//!
//! It passes messages on and looks into none, so that every revision and every extension comes through as it is; what
//! differs between the two transports (sessions, headers, streams, how a call is cancelled) is rmcp's to know.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ConstString as _, ErrorData, InitializedNotification,
    RequestId, ServerJsonRpcMessage, SubscriptionsListenRequestMethod,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, RoleServer};
use sa_lines::Lines;
use tokio::io::{AsyncRead, AsyncWrite};

/// Saying goodbye to the gateway may take this long. A gateway that does not listen ends the session by itself.
const GOODBYE: Duration = Duration::from_secs(5);

/// Waits this long for the first request of a client that cannot be served.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why messages are not passed on any more, in words for people.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The gateway, or the client, does not take part any more.
    #[error("{0}")]
    Broken(String),
    /// What the client was to see is not there.
    #[error("{0}")]
    NotThere(String),
}

/// Passes messages between a client on these streams and the gateway at `url`. When the client has said its last word,
/// what it asked is still answered; when it is `gone` and nobody reads the answers, what it asked is given up. A message
/// that the gateway does not take may be the first to show that the address leads nowhere: `missing` says so, and then
/// whatever the client waits for is answered with that.
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
    let mut talk = Conversation::default();
    let ended = tokio::select! {
        ended = pass(&mut client, &mut gateway, &mut talk, missing) => ended,
        () = gone => Ok(()),
    };
    // Ends the session, if there can be one: before the first message the transport does not listen to a goodbye.
    if talk.begun {
        let _ = tokio::time::timeout(GOODBYE, gateway.close()).await;
    }
    ended
}

/// Answers the first request of a client that cannot be served, so that it hears why. One that asks nothing is not waited
/// for long.
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
    if let Ok(Some(id)) = tokio::time::timeout(PATIENCE, first).await {
        let _ = tell(&mut client, not_there(why, id)).await;
    }
}

fn not_there(why: &str, request: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::invalid_request(why.to_owned(), None), Some(request))
}

/// Where the client and the gateway are in what they have to say to each other.
#[derive(Default)]
struct Conversation {
    begun: bool,
    /// `initialize` was said, and `initialized` was not. The transport takes whatever comes next for it.
    half_open: bool,
    /// Requests of the client that have no answer yet, but for those that only end when somebody ends them.
    asked: HashSet<RequestId>,
}

impl Conversation {
    /// Notes a message of the client's. True if the end of the handshake has to be said before it.
    fn hear(&mut self, message: &ClientJsonRpcMessage) -> bool {
        self.begun = true;
        let was_half_open = std::mem::take(&mut self.half_open);
        match message {
            ClientJsonRpcMessage::Request(request) => {
                self.half_open = matches!(request.request, ClientRequest::InitializeRequest(_));
                if request.request.method() != SubscriptionsListenRequestMethod::VALUE {
                    self.asked.insert(request.id.clone());
                }
            }
            ClientJsonRpcMessage::Notification(said) => match &said.notification {
                ClientNotification::InitializedNotification(_) => return false,
                ClientNotification::CancelledNotification(cancelled) => {
                    // Nothing is answered that nobody wants any more.
                    cancelled.params.request_id.as_ref().map(|id| self.asked.remove(id));
                }
                _ => {}
            },
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        was_half_open
    }

    fn answered(&mut self, message: &ServerJsonRpcMessage) {
        match message {
            ServerJsonRpcMessage::Response(response) => self.asked.remove(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref().is_some_and(|id| self.asked.remove(id)),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
        };
    }
}

async fn pass(
    client: &mut impl Transport<RoleServer>,
    gateway: &mut impl Transport<RoleClient>,
    talk: &mut Conversation,
    missing: impl AsyncFn() -> Option<String>,
) -> Result<(), BridgeError> {
    let mut sending = FuturesUnordered::new();
    let mut listening = true;
    while listening || !sending.is_empty() || !talk.asked.is_empty() {
        // What is to be said to the gateway next.
        let messages = tokio::select! {
            said = client.receive(), if listening => match said {
                Some(message) if talk.hear(&message) => vec![initialized(), message],
                Some(message) => vec![message],
                None => {
                    listening = false;
                    if std::mem::take(&mut talk.half_open) { vec![initialized()] } else { Vec::new() }
                }
            },
            Some((id, sent)) = sending.next() => {
                let Err(error) = sent else { continue };
                tracing::warn!(%error, "the gateway did not take a message");
                if let Some(why) = missing().await {
                    talk.asked.extend(id);
                    for id in talk.asked.drain() {
                        tell(client, not_there(&why, id)).await?;
                    }
                    return Err(BridgeError::NotThere(why));
                }
                // The client waits for an answer to a request, and to nothing else.
                if let Some(id) = id {
                    talk.asked.remove(&id);
                    let error = ErrorData::internal_error(format!("the gateway did not take the request: {error}"), None);
                    tell(client, ServerJsonRpcMessage::error(error, Some(id))).await?;
                }
                continue;
            }
            answer = gateway.receive() => {
                let Some(message) = answer else { return Err(BridgeError::Broken("the connection to the gateway ended".into())) };
                talk.answered(&message);
                match message {
                    // Whoever says nothing any more answers no question either.
                    ServerJsonRpcMessage::Request(question) if !listening => {
                        let error = ErrorData::internal_error("the client has closed its input, and cannot be asked", None);
                        vec![ClientJsonRpcMessage::error(error, Some(question.id))]
                    }
                    message => {
                        tell(client, message).await?;
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

/// The last word of the handshake, for a client that leaves it out.
fn initialized() -> ClientJsonRpcMessage {
    let said = ClientNotification::InitializedNotification(InitializedNotification::default());
    ClientJsonRpcMessage::notification(said)
}

async fn tell(client: &mut impl Transport<RoleServer>, message: ServerJsonRpcMessage) -> Result<(), BridgeError> {
    client.send(message).await.map_err(|error| BridgeError::Broken(format!("the client takes no more: {error}")))
}
