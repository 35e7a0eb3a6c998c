//! The environment that a node needs to connect: a network to the gateway, and randomness.
//!
//! Normal nodes use [`Tcp`]. The simulation replaces it, so that the network and randomness come
//! from a seed; so does the demo node inside a gateway's own process. The trait is hidden because
//! it is only for these, and not a stable part of this crate.

use std::fmt::Debug;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection, before TLS and WebSocket.
pub trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin + 'static> Stream for S {}

pub trait Network: Send + Sync + 'static {
    type Stream: Stream;

    fn dial(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns a number from 0 to 1, for the delay before the next attempt.
    fn jitter(&self) -> f64;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp;

impl Network for Tcp {
    type Stream = TcpStream;

    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host, port)).await?;
        // Frames are small, and the peer waits for each one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        Ok(stream)
    }

    fn jitter(&self) -> f64 {
        rand::random()
    }
}
