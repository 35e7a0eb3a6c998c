//! What a node needs of the world around it to connect: a way to the gateway, and chance.
//!
//! Everybody has [`Tcp`]. Another one takes its place in the simulation, where the network and chance come from a seed, and for
//! the demo node within a gateway's own process; that is what the trait is hidden for, and not a part of what this crate promises.

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

    /// From 0 to 1, for the delay before the next attempt.
    fn jitter(&self) -> f64;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp;

impl Network for Tcp {
    type Stream = TcpStream;

    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host, port)).await?;
        // Frames are small and each is waited for.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        Ok(stream)
    }

    fn jitter(&self) -> f64 {
        rand::random()
    }
}
