//! Closes a connection in a way that lets the gateway see the reason.

use std::time::Duration;

use futures_util::SinkExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::connect::Socket;
use crate::network::Stream;

/// The time limit of a close.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a close frame.
pub(crate) async fn close<S: Stream>(socket: &mut Socket<S>, why: Option<CloseFrame>) {
    let _ = tokio::time::timeout(TIMEOUT, socket.close(why)).await;
}

/// Answers the gateway's close, and waits until the gateway has closed the connection.
pub(crate) async fn answer<S: Stream>(socket: &mut Socket<S>) {
    let farewell = async {
        // The library has already queued the answer.
        if socket.flush().await.is_ok() {
            hung_up(socket).await;
        }
    };
    let _ = tokio::time::timeout(TIMEOUT, farewell).await;
}

/// Sends a close frame with the reason to a gateway that broke the protocol, and waits until the
/// gateway has closed the connection. If the connection is already lost, it sends nothing.
pub(crate) async fn protest<S: Stream>(socket: &mut Socket<S>, error: &Error) {
    let (code, reason) = match error {
        Error::Capacity(_) => (CloseCode::Size, "the frame is too large for this node".into()),
        Error::Utf8(_) => (CloseCode::Invalid, "the text is not UTF-8".into()),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return,
        // The library's messages are short enough for a close frame.
        Error::Protocol(error) => (CloseCode::Protocol, error.to_string().into()),
        _ => return,
    };
    let farewell = async {
        if socket.close(Some(CloseFrame { code, reason })).await.is_ok() {
            hung_up(socket).await;
        }
    };
    let _ = tokio::time::timeout(TIMEOUT, farewell).await;
}

/// Discards all further input. Closing a socket with unread input resets the connection, and the
/// gateway might then lose the close frame.
async fn hung_up<S: Stream>(socket: &mut Socket<S>) {
    let mut rest = vec![0; 4096];
    while socket.get_mut().read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
