//! Opens a connection to the server.

use std::borrow::Cow;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

use crate::Error;
use crate::address::{for_channel, shown};
use crate::builder::Config;
use crate::shared::Position;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The time limit for opening a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a connection could not be opened.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Whether another attempt would only fail in the same way.
    pub(crate) is_final: bool,
}

pub(crate) async fn open(config: &Config, from: Option<&Position>) -> Result<Socket, Failed> {
    let opened = tokio::time::timeout(TIMEOUT, upgrade(config, from)).await;
    opened.unwrap_or_else(|_| Err(failed(config, "no answer within 10 seconds", false)))
}

async fn upgrade(config: &Config, from: Option<&Position>) -> Result<Socket, Failed> {
    let url = for_channel(config.address(), from);
    let request = url
        .as_str()
        .into_client_request()
        .map_err(|error| failed(config, &error.to_string(), true))?;
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| failed(config, &error.to_string(), false))?;
    // Messages are small, and the peer waits for each one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if url.scheme() == "wss" {
        use_some_crypto();
    }
    let limits = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .write_buffer_size(64 * 1024)
        .max_message_size(Some(config.max_message_bytes))
        .max_frame_size(Some(config.max_message_bytes));
    match client_async_tls_with_config(request, stream, Some(limits), None).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let status = response.status();
            let body =
                response.body().as_deref().map_or(Cow::Borrowed(""), String::from_utf8_lossy);
            let refused = matches!(status.as_u16(), 401 | 403);
            let hint =
                if refused { "; check the token, and that it includes this channel" } else { "" };
            Err(failed(
                config,
                &format!("HTTP {status}: {}{hint}", config.token.redact(&body)),
                refused,
            ))
        }
        Err(error) => Err(failed(config, &error.to_string(), false)),
    }
}

fn failed(config: &Config, why: &str, is_final: bool) -> Failed {
    let why = config.token.redact(why);
    Failed {
        error: Error::Connection(format!("could not connect to {}: {why}", shown(&config.url))),
        is_final,
    }
}

/// Installs the cryptography provider that TLS needs, unless the program has already chosen one.
fn use_some_crypto() {
    use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
    if CryptoProvider::get_default().is_none() {
        // This can only fail if another thread was faster.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
