//! How an HTTP connection becomes a WebSocket.
//!
//! axum could do it as well, but what it makes of a connection cannot be looked into; and there is something to look at,
//! see [`Counted`].

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::fragments::Counted;

/// A connection on which messages come and go.
pub type WebSocket = WebSocketStream<Counted<TokioIo<Upgraded>>>;

/// A request that wants its connection to become a WebSocket.
#[derive(Debug)]
pub struct Upgrade {
    key: HeaderValue,
    connection: OnUpgrade,
}

/// What one connection may cost.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    pub max_message_bytes: usize,
}

impl SocketLimits {
    /// Next to no buffers, for tungstenite keeps what it once had, and its own would cost 128 KiB for each idle connection.
    /// That frames are read and written many at a time is up to the stream beneath, which need not keep anything.
    fn config(self) -> WebSocketConfig {
        WebSocketConfig::default()
            .read_buffer_size(512)
            .write_buffer_size(0)
            .max_message_size(Some(self.max_message_bytes))
            .max_frame_size(Some(self.max_message_bytes))
    }
}

impl Upgrade {
    /// Agrees, and hands on the socket once the answer has been written. In a box, so that it is no part of any future.
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
            // A client that has left by now misses nothing.
            let Ok(upgraded) = connection.await else { return };
            let stream = Counted::new(TokioIo::new(upgraded));
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits.config())).await;
            on_socket(Box::new(socket)).await;
        });
        let accept = derive_accept_key(key.as_bytes());
        let headers =
            [(header::CONNECTION, "upgrade"), (header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_ACCEPT, &accept)];
        (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
    }
}

/// What a request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoUpgrade(&'static str);

impl IntoResponse for NoUpgrade {
    fn into_response(self) -> Response {
        (StatusCode::UPGRADE_REQUIRED, self.0).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = NoUpgrade;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoUpgrade> {
        let headers = &parts.headers;
        if parts.method != Method::GET {
            return Err(NoUpgrade("a WebSocket begins with a GET"));
        }
        if !lists(headers, header::CONNECTION, "upgrade") {
            return Err(NoUpgrade("the Connection header does not say \"upgrade\""));
        }
        if !lists(headers, header::UPGRADE, "websocket") {
            return Err(NoUpgrade("the Upgrade header does not say \"websocket\""));
        }
        if !lists(headers, header::SEC_WEBSOCKET_VERSION, "13") {
            return Err(NoUpgrade("the Sec-WebSocket-Version is not 13"));
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY).cloned().ok_or(NoUpgrade("there is no Sec-WebSocket-Key"))?;
        let connection = parts.extensions.remove().ok_or(NoUpgrade("a WebSocket needs HTTP/1.1"))?;
        Ok(Self { key, connection })
    }
}

/// Whether a header has this among its values, in any case of its letters.
fn lists(headers: &HeaderMap, name: HeaderName, value: &str) -> bool {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[track_caller]
    fn check(method: Method, headers: &[(&str, &str)], lacks: &str) {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let mut found = std::pin::pin!(Upgrade::from_request_parts(&mut parts, &()));
        let found = futures_util::FutureExt::now_or_never(found.as_mut()).unwrap();
        assert!(found.unwrap_err().to_string().contains(lacks), "{headers:?}");
    }

    #[test]
    fn a_request_is_told_what_it_lacks() {
        let all = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "x"),
        ];
        let lacks = ["Connection", "Upgrade", "Version", "Key", "HTTP/1.1"];
        for (given, lacks) in lacks.into_iter().enumerate() {
            check(Method::GET, &all[..given], lacks);
        }
        check(Method::POST, &all, "GET");
        check(Method::GET, &[("connection", "no-upgrade")], "Connection");
    }
}
