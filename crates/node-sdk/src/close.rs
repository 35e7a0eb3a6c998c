//! The end of a connection, so that the gateway hears why.

use std::time::Duration;

use futures_util::SinkExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::connect::Socket;
use crate::network::Stream;

/// How long a farewell may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Says that this side closes.
pub(crate) async fn close<S: Stream>(socket: &mut Socket<S>, why: Option<CloseFrame>) {
    let _ = tokio::time::timeout(PATIENCE, socket.close(why)).await;
}

/// Answers the gateway's close, and waits until it has hung up.
pub(crate) async fn answer<S: Stream>(socket: &mut Socket<S>) {
    let farewell = async {
        // The library has made the answer ready.
        if socket.flush().await.is_ok() {
            hung_up(socket).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, farewell).await;
}

/// Tells a gateway that broke the protocol what was wrong, and waits until it has hung up. One that is gone is told nothing.
pub(crate) async fn protest<S: Stream>(socket: &mut Socket<S>, error: &Error) {
    let (code, reason) = match error {
        Error::Capacity(_) => (CloseCode::Size, "the frame is too large for this node".into()),
        Error::Utf8(_) => (CloseCode::Invalid, "the text is not UTF-8".into()),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return,
        // The library's words for it are short enough for a close frame.
        Error::Protocol(error) => (CloseCode::Protocol, error.to_string().into()),
        _ => return,
    };
    let farewell = async {
        if socket.close(Some(CloseFrame { code, reason })).await.is_ok() {
            hung_up(socket).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, farewell).await;
}

/// Throws away what still comes. Who hangs up with something unread resets the connection, which can take the last words
/// from the gateway.
async fn hung_up<S: Stream>(socket: &mut Socket<S>) {
    let mut rest = vec![0; 4096];
    while socket.get_mut().read(&mut rest).await.is_ok_and(|read| read > 0) {}
}
