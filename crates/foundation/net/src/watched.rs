//! Bounds the cost of a stream's messages where the library has no limit.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sa_limits::budget::{Permit, Share};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cut::{Cuts, Cutting, Step, TooLarge};
use crate::frames::{Frames, Header, Seen};
use crate::source::{Came, Source, clamped};
use crate::split::Splitting;

/// A stream that inspects frame headers before the library reads the frames.
///
/// A message is bounded in bytes, but a fragment may be empty, and the library does not limit their
/// number. A peer could keep it busy forever with a message that never ends. This stream stops
/// reading when a message has more fragments than any client needs.
///
/// The library gives up a connection when one message exceeds the limit. Many calls may share the
/// connection, and the message belongs to only one of them. This stream can therefore cut the
/// message. The library then receives the beginning as a complete message, and [`Cuts`] reports the
/// cut. Large frames are split, see [`Splitting`].
///
/// The library buffers a message until it is complete. The buffer of one connection is bounded.
/// Large messages also take from a shared budget, which bounds the sum over all connections. If the
/// budget is exhausted, the connection is closed.
#[derive(Debug)]
pub struct Watched<S> {
    /// Its unread bytes begin with a header or a part of one, unless a frame is under way.
    source: Source<S>,
    frames: Frames,
    cuts: Cuts,
    under_way: UnderWay,
    /// The bytes that the incomplete message takes from the budget of large messages.
    permit: Option<Permit>,
    /// The bytes to pass on before anything else.
    out: Vec<u8>,
}

/// The stream is not read any further because the budget for large messages is exhausted.
#[derive(Debug, thiserror::Error)]
#[error("the gateway's budget for large messages is used up; try again later")]
pub(crate) struct NoRoom;

/// A frame or message that is not passed on unchanged.
#[derive(Debug)]
enum UnderWay {
    Nothing,
    Splitting(Splitting),
    Cutting(Box<Cutting>),
}

impl<S> Watched<S> {
    /// Creates a stream for messages of at most `max_message` bytes.
    ///
    /// A larger message is cut if `cuts` is set, and ends the stream otherwise.
    pub(crate) fn new(stream: S, max_message: usize, cuts: bool, budget: Option<&Share>) -> Self {
        Self {
            source: Source { stream, unread: Vec::new(), came: Came::default() },
            frames: Frames::new(max_message as u64),
            cuts: if cuts { Cuts::told() } else { Cuts::default() },
            under_way: UnderWay::Nothing,
            permit: budget.map(Share::empty),
            out: Vec::new(),
        }
    }

    pub(crate) fn came(&self) -> &Came {
        &self.source.came
    }

    /// Returns the number of bytes that the library buffers for the current message.
    ///
    /// The last small frame of a message is not counted, because the library releases it at once.
    fn unfinished(&self) -> u64 {
        match &self.under_way {
            UnderWay::Nothing => self.frames.message_so_far(),
            UnderWay::Splitting(splitting) => splitting.passed(),
            UnderWay::Cutting(cutting) => cutting.passed,
        }
    }

    /// Takes the bytes of a large incomplete message from the budget, and returns them when it has
    /// ended.
    fn count_unfinished(&mut self) -> io::Result<()> {
        let wanted = clamped(self.unfinished(), usize::MAX);
        let Some(permit) = &mut self.permit else { return Ok(()) };
        permit.resize_in_steps(wanted).map_err(|_| io::Error::other(NoRoom))
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// Returns the size of the last message that was read, if it was cut.
    ///
    /// This is for a socket that is read before it is served.
    pub fn take_cut(&self) -> Option<u64> {
        self.cuts.take()
    }

    /// Starts to cut a message. `passed` is the number of its bytes that were already passed on.
    fn cut(&mut self, passed: u64) -> io::Result<()> {
        if !self.cuts.are_told() {
            return Err(io::Error::other(TooLarge));
        }
        let mut cutting = Box::new(Cutting::new(self.frames.max_message, passed));
        if let Some(header) = next_header(&mut self.source, &mut self.frames)? {
            cutting.enter(header, &mut self.out).map_err(io::Error::other)?;
            self.under_way = UnderWay::Cutting(cutting);
        }
        Ok(())
    }

    /// Scans the unread bytes.
    fn look(&mut self) -> io::Result<Looked> {
        match self.frames.pass(&self.source.unread).map_err(io::Error::other)? {
            Seen::All => self.out = std::mem::take(&mut self.source.unread),
            Seen::Header(0) => return Ok(Looked::TooLittle),
            Seen::Large(0) => {
                let before = self.frames.message;
                if let Some(header) = next_header(&mut self.source, &mut self.frames)? {
                    self.under_way = UnderWay::Splitting(Splitting::new(header, before));
                }
            }
            Seen::TooLarge(0) => self.cut(self.frames.message)?,
            Seen::Header(at) | Seen::Large(at) | Seen::TooLarge(at) => {
                self.out.extend(self.source.unread.drain(..at));
            }
        }
        Ok(Looked::Enough)
    }
}

/// Takes the header of a frame that is not passed on unchanged, if the header is complete.
fn next_header<S>(source: &mut Source<S>, frames: &mut Frames) -> io::Result<Option<Header>> {
    let Some((header, length)) = Header::read(&source.unread) else { return Ok(None) };
    source.unread.drain(..length);
    frames.enter_other(&header).map_err(io::Error::other)?;
    Ok(Some(header))
}

/// Whether the unread bytes are enough to continue.
enum Looked {
    Enough,
    TooLittle,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Processes the next bytes. Returns `false` at the end of the stream.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        if !self.out.is_empty() {
            let passed = self.out.len().min(buffer.remaining());
            buffer.put_slice(&self.out[..passed]);
            self.out.drain(..passed);
            return Poll::Ready(Ok(true));
        }
        match &mut self.under_way {
            UnderWay::Splitting(splitting) => {
                let goes_on = ready!(splitting.poll(cx, &mut self.source, buffer, &mut self.out))?;
                if splitting.is_done() {
                    self.under_way = UnderWay::Nothing;
                }
                Poll::Ready(Ok(goes_on))
            }
            UnderWay::Cutting(_) => self.poll_cut(cx, buffer),
            UnderWay::Nothing if self.source.unread.is_empty() => self.poll_pass(cx, buffer),
            UnderWay::Nothing => match self.look()? {
                Looked::Enough => Poll::Ready(Ok(true)),
                Looked::TooLittle => self.source.poll_more(cx),
            },
        }
    }

    fn poll_cut(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let UnderWay::Cutting(cutting) = &mut self.under_way else { return Poll::Ready(Ok(true)) };
        match ready!(cutting.poll(cx, &mut self.source, buffer, &mut self.out))? {
            Step::On => {}
            Step::Frame => {
                let Some(header) = next_header(&mut self.source, &mut self.frames)? else {
                    return self.source.poll_more(cx);
                };
                cutting.enter(header, &mut self.out).map_err(io::Error::other)?;
            }
            Step::Message => {
                self.cuts.set(cutting.bytes);
                self.under_way = UnderWay::Nothing;
                Header::more(0).last().write(&mut self.out);
            }
            Step::Stream => return Poll::Ready(Ok(false)),
        }
        Poll::Ready(Ok(true))
    }

    /// Passes bytes on unchanged, as for nearly all data.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        // An idle connection keeps no buffer.
        self.out = Vec::new();
        let before = buffer.filled().len();
        ready!(self.source.poll_stream(cx, buffer))?;
        let came = &buffer.filled()[before..];
        let (passed, is_end) = match self.frames.pass(came).map_err(io::Error::other) {
            Ok(Seen::All) => (came.len(), came.is_empty()),
            Ok(Seen::Header(at) | Seen::Large(at) | Seen::TooLarge(at)) => (at, false),
            Err(error) => {
                buffer.set_filled(before);
                return Poll::Ready(Err(error));
            }
        };
        self.source.unread = came[passed..].to_vec();
        buffer.set_filled(before + passed);
        Poll::Ready(Ok(!is_end))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        // Returning no bytes would mean the end of the stream, so the loop continues until some are
        // passed on. It passes on at most one step, because the end of a cut message must reach the
        // library alone.
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            if !ready!(this.poll_step(cx, buffer))? {
                break;
            }
        }
        if let Err(error) = this.count_unfinished() {
            buffer.set_filled(before);
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.source.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_shutdown(cx)
    }
}
