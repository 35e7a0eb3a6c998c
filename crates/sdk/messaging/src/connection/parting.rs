//! The end of a connection that the server closes or breaks: the server should receive the answer,
//! or the reason.

use std::time::Duration;

use futures_util::SinkExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::open::Socket;

/// The time limit of the close.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The last frame of a connection.
pub(crate) enum Parting {
    /// The answer to the server's close, which the library has already queued.
    Answer,
    /// The reason why the server's input was invalid.
    Protest(CloseFrame),
}

impl Parting {
    /// Returns the close for a server that broke the protocol, or `None` if the connection is
    /// already lost.
    pub(crate) fn protest(error: &Error) -> Option<Self> {
        let (code, reason) = match error {
            Error::Capacity(_) => {
                (CloseCode::Size, "the message is too large for this participant".into())
            }
            Error::Utf8(_) => (CloseCode::Invalid, "the text is not UTF-8".into()),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return None,
            // The library's messages are short enough for a close frame.
            Error::Protocol(error) => (CloseCode::Protocol, error.to_string().into()),
            _ => return None,
        };
        Some(Self::Protest(CloseFrame { code, reason }))
    }

    /// Sends the last frame, and waits until the server has closed the connection.
    pub(crate) async fn part(self, mut socket: Socket) {
        let said = async {
            match self {
                Self::Answer => socket.flush().await?,
                Self::Protest(why) => socket.close(Some(why)).await?,
            }
            // All further input is discarded. Closing a socket with unread input resets the
            // connection, and the server might then lose the last frame.
            let mut rest = vec![0; 4096];
            while socket.get_mut().read(&mut rest).await? > 0 {}
            Ok::<_, Error>(())
        };
        // If the server has disconnected meanwhile, nothing is left to do.
        let _ = tokio::time::timeout(TIMEOUT, said).await;
    }
}
