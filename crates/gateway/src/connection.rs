//! A connection's place among all that may be open, which goes with the socket wherever that goes.

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
use crate::slot::Slot;

/// What a WebSocket says and hears at a time passes through a buffer of this size.
const AT_ONCE: usize = 16 * 1024;

/// How often it is looked whether a peer is still there that nothing is read from.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How the answer begins after which a connection is a WebSocket. The gateway has to mean it: any other answer may have these
/// words in it, for whoever asked for them.
const SWITCHED: &[u8] = b"HTTP/1.1 101";

/// A socket with its place. A WebSocket outlives the HTTP connection that it was; the place is given back with the socket
/// itself, so that it counts for as long as there is something to count.
///
/// A WebSocket's buffers live for as long as it does, and most of the time it is idle. So it is given next to none, and
/// what makes many frames one system call is here: buffers that are there only while something is in them.
///
/// hyper hears that a client has gone by reading, and reads nothing while it has bytes that lie behind the request under way:
/// a line break too many, or the next request. Whoever left would have their call run to its deadline. So it is looked for
/// here, in the flush that ends every turn of a connection.
///
/// Until it is one, a peer that takes nothing of what is written to it for too long is hung up on: what it was to get would
/// stay in memory for as long as it likes. A WebSocket has its own watch over this.
#[derive(Debug)]
pub(crate) struct Placed<S: AsyncWrite + Peer + Unpin> {
    socket: S,
    place: Place,
    /// Whether somebody waits for what comes next, and so hears of the end.
    listens: bool,
    /// When to look for the end if nobody does. It is left as it is when somebody listens again: a look too many costs less
    /// than a timer for each request.
    look: Option<Pin<Box<Sleep>>>,
    /// There while the peer takes nothing: fires when that has gone on for too long.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether it is to become a WebSocket with the answer that is written next.
    agreed: Arc<AtomicBool>,
    /// Whether it has become one.
    switched: bool,
    /// What was read from the socket and not asked for yet.
    ahead: Vec<u8>,
    /// How much of that has been handed on.
    handed_on: usize,
    /// What is to be written.
    gathered: Vec<u8>,
    /// How much of that has been written.
    written: usize,
}

#[derive(Debug)]
pub(crate) struct Place {
    metrics: Arc<Metrics>,
    /// How long the peer may take nothing.
    patience: Duration,
    /// Absent for a connection from within, which counts for nobody.
    slot: Option<Arc<Slot>>,
}

/// Whoever is at the other end of a socket.
pub(crate) trait Peer {
    /// Whether they say nothing more, however much of what they have said is unread.
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

/// A connection from within is the gateway's own, and nobody hurries on it.
impl Peer for DuplexStream {
    fn has_gone(&self) -> bool {
        false
    }
}

impl Place {
    pub(crate) fn new(slot: Option<Arc<Slot>>, metrics: Arc<Metrics>, patience: Duration) -> Self {
        metrics.connections().inc();
        Self { metrics, patience, slot }
    }

    pub(crate) fn with<S: AsyncWrite + Peer + Unpin>(self, socket: S) -> Placed<S> {
        Placed {
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

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connections().dec();
    }
}

impl<S: AsyncRead + AsyncWrite + Peer + Unpin> AsyncRead for Placed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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

impl<S: AsyncWrite + Peer + Unpin> Placed<S> {
    /// Set by whoever agrees that it becomes a WebSocket, before the answer that says so.
    pub(crate) fn agreed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.agreed)
    }

    /// What the connection counts as, among all that are open.
    pub(crate) fn slot(&self) -> Option<Arc<Slot>> {
        self.place.slot.clone()
    }

    /// Looks for the end of a peer that nobody listens to, from time to time.
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

    /// What became of a write or a flush, unless the peer has taken nothing for too long.
    fn in_time<T>(&mut self, done: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_ready() || self.switched {
            self.stalled = None;
            return done;
        }
        let patience = self.place.patience;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        self.stalled = None;
        self.place.metrics.refused("http", "reads_nothing");
        let why = format!("the peer took nothing of what it was sent for {} ms", patience.as_millis());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    /// Writes what was gathered, all of it.
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.gathered[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        (self.gathered, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Peer + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.switched {
            this.switched = bytes.starts_with(SWITCHED) && this.agreed.load(Ordering::Relaxed);
            if this.switched {
                // From now on somebody listens all the time.
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

impl<S: AsyncWrite + Peer + Unpin> Drop for Placed<S> {
    /// tungstenite writes the answer to a peer's close and is done, without a flush: what was gathered leaves now. A socket
    /// that takes nothing at this moment has a peer that is not waiting for it.
    fn drop(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let last = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx));
        // It has one try, which must not be refused for what the task has done before.
        let last = std::pin::pin!(tokio::task::unconstrained(last));
        let _ = last.poll(&mut Context::from_waker(Waker::noop()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A socket and its other end, with room for so much on the way.
    fn placed(room: usize) -> (Placed<DuplexStream>, DuplexStream) {
        let (here, there) = tokio::io::duplex(room);
        (Place::new(None, Arc::new(Metrics::default()), PATIENCE).with(here), there)
    }

    fn refused(here: &Placed<DuplexStream>) -> bool {
        here.place.metrics.render(0, 0, 0).contains("reads_nothing")
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_too_long_is_hung_up_on() {
        let (mut here, there) = placed(7);
        let error = here.write_all(&[1; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(refused(&here));
        drop(there);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_not_and_nor_is_who_is_written_nothing() {
        let (mut here, mut there) = placed(7);
        let taking = tokio::spawn(async move {
            for _ in 0..100 {
                tokio::time::sleep(PATIENCE * 9 / 10).await;
                there.read_u8().await.unwrap();
            }
            there
        });
        here.write_all(&[1; 100]).await.unwrap();
        let _there = taking.await.unwrap();
        tokio::time::sleep(10 * PATIENCE).await;
        here.write_all(&[1; 7]).await.unwrap();
        assert!(!refused(&here));
    }

    #[tokio::test(start_paused = true)]
    async fn a_web_socket_has_its_own_watch() {
        let (mut here, there) = switched(50).await;
        let said = vec![1; 3 * AT_ONCE];
        let writing = here.write_all(&said);
        assert!(tokio::time::timeout(10 * PATIENCE, writing).await.is_err());
        assert!(!refused(&here));
        drop(there);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_only_sounds_like_one_makes_no_web_socket() {
        let (mut here, mut there) = placed(50);
        here.write_all(SWITCHED).await.unwrap();
        there.read_exact(&mut [0; SWITCHED.len()]).await.unwrap();
        let error = here.write_all(&[1; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// One that has become a WebSocket.
    async fn switched(room: usize) -> (Placed<DuplexStream>, DuplexStream) {
        let (mut here, mut there) = placed(room);
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
        assert_eq!((here.gathered.capacity(), here.ahead.capacity()), (0, 0), "an idle one has no buffers");
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
