//! The end of a connection that the server closes, or breaks: it is to hear the answer, or why.

use std::time::Duration;

use futures_util::SinkExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::open::Socket;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is said last.
pub(crate) enum Parting {
    /// The answer to the server's close, which the library has made ready.
    Answer,
    /// What was wrong with what the server said.
    Protest(CloseFrame),
}

impl Parting {
    /// For a server that broke the protocol. One that is gone is told nothing.
    pub(crate) fn protest(error: &Error) -> Option<Self> {
        let (code, reason) = match error {
            Error::Capacity(_) => (CloseCode::Size, "the message is too large for this participant".into()),
            Error::Utf8(_) => (CloseCode::Invalid, "the text is not UTF-8".into()),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return None,
            // The library's words for it are short enough for a close frame.
            Error::Protocol(error) => (CloseCode::Protocol, error.to_string().into()),
            _ => return None,
        };
        Some(Self::Protest(CloseFrame { code, reason }))
    }

    /// Says it, and waits until the server has hung up.
    pub(crate) async fn part(self, mut socket: Socket) {
        let said = async {
            match self {
                Self::Answer => socket.flush().await?,
                Self::Protest(why) => socket.close(Some(why)).await?,
            }
            // What still comes is thrown away. Who hangs up with something unread resets the connection, which can take the
            // last words from the server.
            let mut rest = vec![0; 4096];
            while socket.get_mut().read(&mut rest).await? > 0 {}
            Ok::<_, Error>(())
        };
        // A server that is gone meanwhile needs no more.
        let _ = tokio::time::timeout(PATIENCE, said).await;
    }
}
