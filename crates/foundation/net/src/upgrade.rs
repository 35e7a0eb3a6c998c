//! Upgrades an HTTP connection to a WebSocket.
//!
//! axum can do this too, but its connection type gives no access to the stream. [`Watched`] needs
//! to read the stream.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sa_limits::budget::Share;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::cut::REST_OF_CHARACTER;
use crate::watched::Watched;

/// A WebSocket connection.
pub type WebSocket = WebSocketStream<Watched<TokioIo<Upgraded>>>;

/// A request to upgrade its connection to a WebSocket.
#[derive(Debug)]
pub struct Upgrade {
    key: HeaderValue,
    connection: OnUpgrade,
}

/// The resource limits of one connection.
#[derive(Debug, Clone)]
pub struct SocketLimits {
    pub max_message_bytes: usize,
    /// Whether a message that exceeds the limit is cut, so that the connection can continue.
    ///
    /// Otherwise the message ends the connection. A message of many times the limit always ends it.
    pub cuts: bool,
    /// The budget that large messages take from until they are complete.
    pub budget: Option<Share>,
}

impl SocketLimits {
    /// Configures tungstenite with almost no buffers.
    ///
    /// tungstenite keeps every buffer that it has allocated. Its default buffers would cost 128 KiB
    /// for each idle connection. The stream below batches reads and writes instead, and need not
    /// keep a buffer.
    pub(crate) fn config(&self) -> WebSocketConfig {
        let beyond = if self.cuts { REST_OF_CHARACTER.into() } else { 0 };
        let most = Some(self.max_message_bytes.saturating_add(beyond));
        WebSocketConfig::default()
            .read_buffer_size(512)
            .write_buffer_size(0)
            .max_message_size(most)
            .max_frame_size(most)
    }

    pub(crate) fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched::new(stream, self.max_message_bytes, self.cuts, self.budget.as_ref())
    }
}

impl Upgrade {
    /// Whether a request asks for a WebSocket in any form, valid or not.
    pub fn is_asked_for(headers: &HeaderMap) -> bool {
        lists(headers, header::UPGRADE, "websocket")
    }

    /// Accepts the upgrade, and passes the socket on after the response has been written.
    ///
    /// The socket is boxed to keep it out of the futures.
    pub fn serve<F>(
        self,
        limits: SocketLimits,
        on_socket: impl FnOnce(Box<WebSocket>) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { key, connection } = self;
        tokio::spawn(async move {
            // The client has disconnected before the upgrade completed.
            let Ok(upgraded) = connection.await else { return };
            let stream = limits.watch(TokioIo::new(upgraded));
            let socket =
                WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits.config())).await;
            on_socket(Box::new(socket)).await;
        });
        let accept = derive_accept_key(key.as_bytes());
        let headers = [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, &accept),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
    }
}

/// The reason why a request cannot upgrade its connection to a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoUpgrade {
    /// The request does not ask for a WebSocket, or asks for an unsupported version.
    #[error("{0}")]
    NotAsked(&'static str),
    /// The request asks for a WebSocket, but is malformed.
    #[error("{0}")]
    Malformed(&'static str),
}

impl IntoResponse for NoUpgrade {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NotAsked(_) => StatusCode::UPGRADE_REQUIRED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
        };
        (status, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = NoUpgrade;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoUpgrade> {
        use NoUpgrade::{Malformed, NotAsked};
        let headers = &parts.headers;
        if parts.method != Method::GET {
            return Err(NotAsked("a WebSocket must begin with a GET request"));
        }
        if !lists(headers, header::CONNECTION, "upgrade") {
            return Err(NotAsked("the Connection header does not contain \"upgrade\""));
        }
        if !lists(headers, header::UPGRADE, "websocket") {
            return Err(NotAsked("the Upgrade header is not \"websocket\""));
        }
        if parts.version != Version::HTTP_11 {
            return Err(Malformed("a WebSocket needs HTTP/1.1"));
        }
        match only(headers, header::SEC_WEBSOCKET_VERSION) {
            Some(version) if version == "13" => {}
            Some(_) => return Err(NotAsked("the Sec-WebSocket-Version is not 13")),
            None => {
                return Err(Malformed(
                    "a WebSocket needs one Sec-WebSocket-Version header with the value 13",
                ));
            }
        }
        let key = only(headers, header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key)).cloned();
        let key = key.ok_or(Malformed(
            "a WebSocket needs one Sec-WebSocket-Key header, with 16 bytes in base64",
        ))?;
        if has_body(headers) {
            return Err(Malformed("the request for a WebSocket must not have a body"));
        }
        let connection = parts
            .extensions
            .remove()
            .ok_or(Malformed("this connection cannot become a WebSocket"))?;
        Ok(Self { key, connection })
    }
}

/// Returns the value of a header that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(name).into_iter();
    lines.next().filter(|_| lines.next().is_none())
}

fn is_key(key: &HeaderValue) -> bool {
    BASE64.decode(key).is_ok_and(|key| key.len() == 16)
}

/// Whether a body follows the request head.
///
/// One side could read those bytes as frames and the other side as a body.
fn has_body(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING)
        || lengths.into_iter().any(|length| length != "0")
}

/// Whether a header lists this value. The comparison ignores ASCII case.
fn lists(headers: &HeaderMap, name: HeaderName, value: &str) -> bool {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use axum::http::request::Builder;
    use futures_util::FutureExt as _;

    use super::*;

    #[track_caller]
    fn check(request: Builder, expected: &str) {
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let found = Upgrade::from_request_parts(&mut parts, &()).now_or_never().unwrap();
        let refused = found.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}: {:?}", parts.headers);
    }

    const ALL: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    /// The error of a request that is valid except that the test has no connection to upgrade.
    const NOTHING: &str = "cannot become";

    fn with(headers: &[(&str, &str)]) -> Builder {
        headers
            .iter()
            .fold(Request::builder(), |request, (name, value)| request.header(*name, *value))
    }

    #[test]
    fn a_request_is_told_what_it_lacks() {
        let lacks = ["Connection", "Upgrade", "Version", "Key", NOTHING];
        for (given, lacks) in lacks.into_iter().enumerate() {
            check(with(&ALL[..given]), lacks);
        }
        check(with(&ALL).method(Method::POST), "GET");
        check(with(&ALL).version(Version::HTTP_10), "HTTP/1.1");
        check(with(&[("connection", "no-upgrade")]), "Connection");
    }

    #[test]
    fn a_key_is_16_bytes_in_base64() {
        let keys = [
            "",
            "x",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZTE=",
            "dGhlIHNhbXBsZSBub25j",
            "&&&lIHNhbXBsZSBub25jZQ==",
        ];
        for key in keys {
            check(with(&ALL[..3]).header("sec-websocket-key", key), "Key");
        }
    }

    #[test]
    fn what_may_stand_there_once_does() {
        check(with(&ALL).header("sec-websocket-version", "13"), "Version");
        check(with(&ALL).header("sec-websocket-key", ALL[3].1), "Key");
        let other = [ALL[0], ALL[1], ("sec-websocket-version", "13, 8"), ALL[3]];
        check(with(&other), "Version");
        // A header list may span several lines.
        check(with(&ALL).header("upgrade", "h2c").header("connection", "keep-alive"), NOTHING);
    }

    #[test]
    fn there_is_no_body() {
        check(with(&ALL).header("content-length", "1"), "body");
        check(with(&ALL).header("transfer-encoding", "chunked"), "body");
        check(with(&ALL).header("content-length", "0"), NOTHING);
    }
}
