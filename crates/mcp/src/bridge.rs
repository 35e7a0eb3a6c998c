//! A stdio MCP server in front of a gateway's `/mcp`, for clients that know nothing else.
//!
//! It passes messages on and looks into none, so that every revision and every extension comes through as it is; what
//! differs between the two transports (sessions, headers, streams, how a call is cancelled) is rmcp's to know.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, RoleServer};
use tokio::io::{AsyncRead, AsyncWrite};

/// Passes messages between a client on these streams and the gateway at `url`, until the client leaves. Fails with words
/// for people when the gateway does.
pub async fn bridge(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    http: reqwest::Client,
    url: String,
    token: String,
) -> Result<(), String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.auth_header = Some(token).filter(|token| !token.is_empty());
    let mut gateway = StreamableHttpClientTransport::with_client(http, config);
    let mut client = AsyncRwTransport::<RoleServer, _, _>::new_server(read, write);
    let ended = pass(&mut client, &mut gateway).await;
    // Ends the session, if there is one.
    let _ = gateway.close().await;
    ended
}

async fn pass(client: &mut impl Transport<RoleServer>, gateway: &mut impl Transport<RoleClient>) -> Result<(), String> {
    let mut sending = FuturesUnordered::new();
    loop {
        tokio::select! {
            said = client.receive() => {
                let Some(message) = said else { return Ok(()) };
                let id = match &message {
                    ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
                    _ => None,
                };
                let sent = gateway.send(message);
                sending.push(async move { (id, sent.await) });
            }
            Some((id, sent)) = sending.next() => {
                let Err(error) = sent else { continue };
                tracing::warn!(%error, "the gateway did not take a message");
                // The client waits for an answer to a request, and to nothing else.
                if let Some(id) = id {
                    let error = ErrorData::internal_error(format!("the gateway did not take the request: {error}"), None);
                    tell(client, ServerJsonRpcMessage::error(error, Some(id))).await?;
                }
            }
            answer = gateway.receive() => {
                let Some(message) = answer else { return Err("the connection to the gateway ended".into()) };
                tell(client, message).await?;
            }
        }
    }
}

async fn tell(client: &mut impl Transport<RoleServer>, message: ServerJsonRpcMessage) -> Result<(), String> {
    client.send(message).await.map_err(|error| format!("the client takes no more: {error}"))
}
