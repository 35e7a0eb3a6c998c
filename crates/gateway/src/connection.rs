//! Wraps sockets with a connection slot that is released together with the socket.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

use crate::metrics::Metrics;
use sa_http::slot::Slot;

/// The size of the read and write buffers of a WebSocket.
const AT_ONCE: usize = 16 * 1024;

/// The interval for checking whether a peer that is not being read from has disconnected.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The start of the response that switches a connection to WebSocket. The `agreed` flag must also
/// be set, because other responses may contain these bytes on a client's request.
const SWITCHED: &[u8] = b"HTTP/1.1 101";

/// A socket with its connection slot. A WebSocket outlives the HTTP connection it was upgraded
/// from. The slot belongs to the socket, so that it is counted until the socket closes.
///
/// A WebSocket is idle most of the time, but its internal buffers live as long as it does. It is
/// therefore given minimal buffers. Frames are batched here instead, in buffers that exist only
/// while they hold data.
///
/// hyper detects a closed connection by reading. It does not read while it holds bytes beyond the
/// current request, such as an extra line break or the next request. Without a separate check, the
/// call of a disconnected client would run to its deadline. The check happens in the flush that
/// ends each poll of a connection.
///
/// A peer that accepts no written data for too long is disconnected, because its data would stay in
/// memory. This applies until the switch to WebSocket, which has its own timeout.
#[derive(Debug)]
pub(crate) struct Connection<S: AsyncWrite + Peer + Unpin> {
    socket: S,
    place: ConnectionGuard,
    /// Whether a read is pending, which also detects the end of the connection.
    listens: bool,
    /// The timer for the next check if no read is pending. It is kept when reading resumes: one
    /// extra check is cheaper than a timer for each request.
    look: Option<Pin<Box<Sleep>>>,
    /// The stall timer. Set while the peer accepts no data.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether the next response switches the connection to WebSocket.
    agreed: Arc<AtomicBool>,
    /// Whether the connection is a WebSocket.
    switched: bool,
    /// Data that was read from the socket but not requested yet.
    ahead: Vec<u8>,
    /// The number of bytes of `ahead` that were returned to the reader.
    handed_on: usize,
    /// Data to write.
    gathered: Vec<u8>,
    /// The number of bytes of `gathered` that were written.
    written: usize,
}

#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    metrics: Arc<Metrics>,
    /// The timeout for a peer that accepts no data.
    timeout: Duration,
    /// `None` for an internal connection, which is not counted.
    slot: Option<Arc<Slot>>,
}

/// The remote end of a socket.
pub(crate) trait Peer {
    /// Reports whether the peer has closed its side, even if unread data remains.
    fn has_gone(&self) -> bool;
}

impl Peer for TcpStream {
    fn has_gone(&self) -> bool {
        let mut ends = [PollFd::new(self, PollFlags::RDHUP)];
        poll(&mut ends, Some(&Timespec::default())).is_ok_and(|found| found > 0)
    }
}

impl<S: Peer> Peer for TlsStream<S> {
    fn has_gone(&self) -> bool {
        self.get_ref().0.has_gone()
    }
}

/// An internal connection belongs to the gateway and cannot be disconnected by a peer.
impl Peer for DuplexStream {
    fn has_gone(&self) -> bool {
        false
    }
}

impl ConnectionGuard {
    pub(crate) fn new(slot: Option<Arc<Slot>>, metrics: Arc<Metrics>, timeout: Duration) -> Self {
        metrics.connections().inc();
        Self { metrics, timeout, slot }
    }

    pub(crate) fn with<S: AsyncWrite + Peer + Unpin>(self, socket: S) -> Connection<S> {
        Connection {
            socket,
            place: self,
            listens: false,
            look: None,
            stalled: None,
            agreed: Arc::default(),
            switched: false,
            ahead: Vec::new(),
            handed_on: 0,
            gathered: Vec::new(),
            written: 0,
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.metrics.connections().dec();
    }
}

impl<S: AsyncRead + AsyncWrite + Peer + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            if !this.switched || buffer.remaining() >= AT_ONCE {
                let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
                this.listens = read.is_pending();
                return read;
            }
            let mut room = [MaybeUninit::uninit(); AT_ONCE];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut read))?;
            let (now, later) = read.filled().split_at(read.filled().len().min(buffer.remaining()));
            buffer.put_slice(now);
            this.ahead.extend_from_slice(later);
            return Poll::Ready(Ok(()));
        }
        let rest = &this.ahead[this.handed_on..];
        let now = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..now]);
        this.handed_on += now;
        if this.handed_on == this.ahead.len() {
            (this.ahead, this.handed_on) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Peer + Unpin> Connection<S> {
    /// Returns the flag that permits the switch to WebSocket. It must be set before the response is
    /// written.
    pub(crate) fn agreed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.agreed)
    }

    /// Returns the slot of the connection, if it is counted.
    pub(crate) fn slot(&self) -> Option<Arc<Slot>> {
        self.place.slot.clone()
    }

    /// Checks periodically whether the peer has disconnected, unless a read is pending.
    fn look_for_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.listens {
            return Ok(());
        }
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
        while look.as_mut().poll(cx).is_ready() {
            if self.socket.has_gone() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            look.as_mut().reset(Instant::now() + LOOK_AGAIN);
        }
        Ok(())
    }

    /// Returns the result of a write or flush, or an error if the peer has accepted no data for too
    /// long.
    fn in_time<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() || self.switched {
            self.stalled = None;
            return done;
        }
        let timeout = self.place.timeout;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        self.stalled = None;
        self.place.metrics.refused("http", "reads_nothing");
        let why = format!("the peer has read no data for {} ms", timeout.as_millis());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    /// Writes all gathered data.
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let written =
                ready!(Pin::new(&mut self.socket).poll_write(cx, &self.gathered[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        (self.gathered, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Peer + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.switched {
            this.switched = bytes.starts_with(SWITCHED) && this.agreed.load(Ordering::Relaxed);
            if this.switched {
                // A WebSocket always has a pending read.
                this.look = None;
            }
            let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
            return this.in_time(written, cx);
        }
        if this.gathered.len() + bytes.len() > AT_ONCE {
            ready!(this.poll_gathered(cx))?;
        }
        if bytes.len() > AT_ONCE {
            return Pin::new(&mut this.socket).poll_write(cx, bytes);
        }
        this.gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.switched {
            this.look_for_end(cx)?;
        }
        ready!(this.poll_gathered(cx))?;
        let flushed = Pin::new(&mut this.socket).poll_flush(cx);
        this.in_time(flushed, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_gathered(cx))?;
        let shut = Pin::new(&mut this.socket).poll_shutdown(cx);
        this.in_time(shut, cx)
    }
}

impl<S: AsyncWrite + Peer + Unpin> Drop for Connection<S> {
    /// Writes the gathered data once. tungstenite answers a close frame without a flush. If the
    /// socket accepts no data now, the peer is not waiting for it.
    fn drop(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let last = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx));
        // The single attempt must not fail because the task has used up its cooperative budget.
        let last = std::pin::pin!(tokio::task::unconstrained(last));
        let _ = last.poll(&mut Context::from_waker(Waker::noop()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns a socket and its other end, with this buffer size.
    fn with_slot(room: usize) -> (Connection<DuplexStream>, DuplexStream) {
        let (here, there) = tokio::io::duplex(room);
        (ConnectionGuard::new(None, Arc::new(Metrics::default()), TIMEOUT).with(here), there)
    }

    fn refused(here: &Connection<DuplexStream>) -> bool {
        here.place.metrics.render(0, 0, 0).contains("reads_nothing")
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_too_long_is_hung_up_on() {
        let (mut here, there) = with_slot(7);
        let error = here.write_all(&[1; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(refused(&here));
        drop(there);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_not_and_nor_is_who_is_written_nothing() {
        let (mut here, mut there) = with_slot(7);
        let taking = tokio::spawn(async move {
            for _ in 0..100 {
                tokio::time::sleep(TIMEOUT * 9 / 10).await;
                there.read_u8().await.unwrap();
            }
            there
        });
        here.write_all(&[1; 100]).await.unwrap();
        let _there = taking.await.unwrap();
        tokio::time::sleep(10 * TIMEOUT).await;
        here.write_all(&[1; 7]).await.unwrap();
        assert!(!refused(&here));
    }

    #[tokio::test(start_paused = true)]
    async fn a_web_socket_has_its_own_watch() {
        let (mut here, there) = switched(50).await;
        let said = vec![1; 3 * AT_ONCE];
        let writing = here.write_all(&said);
        assert!(tokio::time::timeout(10 * TIMEOUT, writing).await.is_err());
        assert!(!refused(&here));
        drop(there);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_only_sounds_like_one_makes_no_web_socket() {
        let (mut here, mut there) = with_slot(50);
        here.write_all(SWITCHED).await.unwrap();
        there.read_exact(&mut [0; SWITCHED.len()]).await.unwrap();
        let error = here.write_all(&[1; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// Returns a socket that has switched to WebSocket.
    async fn switched(room: usize) -> (Connection<DuplexStream>, DuplexStream) {
        let (mut here, mut there) = with_slot(room);
        here.agreed().store(true, Ordering::Relaxed);
        let answer = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        let mut heard = [0; 36];
        let answering = async {
            here.write_all(answer).await?;
            here.flush().await
        };
        let (answered, read) = tokio::join!(answering, there.read_exact(&mut heard));
        answered.and(read.map(drop)).unwrap();
        assert_eq!(heard, *answer);
        (here, there)
    }

    #[tokio::test]
    async fn what_is_written_leaves_with_the_flush_and_in_order() {
        let (mut here, mut there) = switched(1 << 20).await;
        let pieces = [vec![1; 10], vec![2; AT_ONCE - 10], vec![3; AT_ONCE + 1], vec![4; 5]];
        let mut heard = vec![0; pieces.concat().len()];
        for piece in &pieces {
            here.write_all(piece).await.unwrap();
        }
        assert_eq!(here.gathered, pieces[3], "the last one waits");
        here.flush().await.unwrap();
        there.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, pieces.concat());
        assert_eq!(
            (here.gathered.capacity(), here.ahead.capacity()),
            (0, 0),
            "an idle one has no buffers"
        );
    }

    #[tokio::test]
    async fn what_nobody_flushed_leaves_when_it_is_dropped() {
        let (mut here, mut there) = switched(1 << 20).await;
        here.write_all(b"goodbye").await.unwrap();
        drop(here);
        let mut heard = Vec::new();
        there.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"goodbye");
    }

    #[tokio::test]
    async fn a_peer_that_reads_slowly_gets_everything() {
        let (mut here, mut there) = switched(7).await;
        let said: Vec<u8> = (0..5_000_u32).flat_map(u32::to_le_bytes).collect();
        let expected = said.clone();
        let saying = async move {
            for piece in said.chunks(100) {
                here.write_all(piece).await.unwrap();
            }
            here.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let ((), read) = tokio::join!(saying, there.read_to_end(&mut heard));
        read.unwrap();
        assert_eq!(heard, expected);
    }

    #[tokio::test]
    async fn what_is_read_ahead_is_handed_on_piece_by_piece() {
        let (mut here, mut there) = switched(1 << 20).await;
        let said: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        there.write_all(&said).await.unwrap();
        drop(there);
        let mut heard = Vec::new();
        let mut piece = [0; 300];
        loop {
            let read = here.read(&mut piece).await.unwrap();
            if read == 0 {
                break;
            }
            heard.extend_from_slice(&piece[..read]);
        }
        assert_eq!(heard, said);
        assert_eq!(here.ahead.capacity(), 0);
    }
}
