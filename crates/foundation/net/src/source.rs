//! Reads a stream piece by piece.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::frames::Header;

/// A stream with the bytes that were read and not scanned yet.
#[derive(Debug)]
pub(crate) struct Source<S> {
    pub(crate) stream: S,
    pub(crate) unread: Vec<u8>,
    pub(crate) came: Came,
}

/// Counts the bytes that have arrived.
///
/// It shows whether the peer is still alive while a long message arrives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Came(Arc<AtomicU64>);

impl Came {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S: AsyncRead + Unpin> Source<S> {
    /// Reads from the stream itself and counts the bytes.
    pub(crate) fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        self.came.0.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    /// Reads some bytes. Returns 0 at the end of the stream.
    pub(crate) fn poll_some(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if !self.unread.is_empty() {
            let there = into.len().min(self.unread.len());
            into[..there].copy_from_slice(&self.unread[..there]);
            self.unread.drain(..there);
            return Poll::Ready(Ok(there));
        }
        let mut into = ReadBuf::new(into);
        ready!(self.poll_stream(cx, &mut into))?;
        Poll::Ready(Ok(into.filled().len()))
    }

    /// Passes on at most `most` bytes. Returns 0 at the end of the stream.
    pub(crate) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        let room = clamped(most, buffer.remaining());
        let read = ready!(self.poll_some(cx, buffer.initialize_unfilled_to(room)))?;
        buffer.advance(read);
        Poll::Ready(Ok(read))
    }

    /// Reads about as many bytes as a header has. Returns `false` at the end of the stream.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut more = [0; Header::MAX];
        let mut more = ReadBuf::new(&mut more);
        ready!(self.poll_stream(cx, &mut more))?;
        self.unread.extend_from_slice(more.filled());
        Poll::Ready(Ok(!more.filled().is_empty()))
    }
}

pub(crate) fn clamped(count: u64, most: usize) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).min(most)
}
