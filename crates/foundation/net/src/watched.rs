//! What a stream's messages may cost beyond what the library bounds.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sa_core::budget::{Permit, Share};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cut::{Cuts, Cutting, Step, TooLarge};
use crate::frames::{Frames, Header, Seen};
use crate::source::{Came, Source, clamped};
use crate::split::Splitting;

/// A stream whose frames are looked at before the library gets them, by their headers.
///
/// A message is bounded in bytes, but a fragment may be empty, and the library puts messages together without saying of
/// how many: a peer could keep it busy for ever with one that never ends. So a stream is read no further once a message has
/// more fragments than any needs.
///
/// The library gives a connection up for a message that is larger than it may be, though many calls may share the connection
/// and the message be one's. So a message can be cut instead: the library gets its beginning for a message of its own, and
/// [`Cuts`] says that it is one. And large frames are split, see [`Splitting`].
///
/// The library keeps what has come of a message until all of it is there. One connection's is bounded; so that many are, too,
/// those that are large take from a shared budget. A connection that is refused there is closed.
#[derive(Debug)]
pub struct Watched<S> {
    /// What is unread of it begins with a header, or with a part of one, unless there is something under way.
    source: Source<S>,
    frames: Frames,
    cuts: Cuts,
    under_way: UnderWay,
    /// What the unfinished message takes from the budget of large messages.
    permit: Option<Permit>,
    /// What is to be passed on before anything else.
    out: Vec<u8>,
}

/// What a stream is not read any further for.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has no room for more large messages at the moment; try again later")]
pub(crate) struct NoRoom;

/// What is not just passed on.
#[derive(Debug)]
enum UnderWay {
    Nothing,
    Splitting(Splitting),
    Cutting(Box<Cutting>),
}

impl<S> Watched<S> {
    /// For messages of at most so many bytes. A larger one is cut, or ends the stream.
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

    /// How much the library keeps of the message under way. The last of a message's small frames is left out: it is gone in a
    /// moment.
    fn unfinished(&self) -> u64 {
        match &self.under_way {
            UnderWay::Nothing => self.frames.message_so_far(),
            UnderWay::Splitting(splitting) => splitting.passed(),
            UnderWay::Cutting(cutting) => cutting.passed,
        }
    }

    /// Counts what has come of a message once that is large, and gives it back when the message has ended.
    fn count_unfinished(&mut self) -> io::Result<()> {
        let wanted = clamped(self.unfinished(), usize::MAX);
        let Some(permit) = &mut self.permit else { return Ok(()) };
        permit.resize_in_steps(wanted).map_err(|_| io::Error::other(NoRoom))
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// How many bytes the message had that was read last, if it was cut. For who reads a socket that is not served yet.
    pub fn take_cut(&self) -> Option<u64> {
        self.cuts.take()
    }

    /// Begins to cut a message, of which so many bytes were passed on.
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

    /// Looks at what has been read.
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
            Seen::Header(at) | Seen::Large(at) | Seen::TooLarge(at) => self.out.extend(self.source.unread.drain(..at)),
        }
        Ok(Looked::Enough)
    }
}

/// Takes the header of a frame whose payload is not just passed on, if all of it is there.
fn next_header<S>(source: &mut Source<S>, frames: &mut Frames) -> io::Result<Option<Header>> {
    let Some((header, length)) = Header::read(&source.unread) else { return Ok(None) };
    source.unread.drain(..length);
    frames.enter_other(&header).map_err(io::Error::other)?;
    Ok(Some(header))
}

/// Whether there is enough to go on with.
enum Looked {
    Enough,
    TooLittle,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Takes a step with what comes next; `false` at the end of the stream.
    fn poll_step(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
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

    fn poll_cut(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
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

    /// Passes on what comes as it is, which nearly everything does.
    fn poll_pass(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        // An idle connection keeps nothing of what it once had.
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
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        // To pass on nothing would say that the stream has ended. Not more than one step's worth, though: what tells of a
        // cut must reach the library by itself.
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.source.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_shutdown(cx)
    }
}
