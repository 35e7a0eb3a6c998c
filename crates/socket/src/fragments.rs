//! How many fragments a message may have.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most fragments of one message. Autobahn's test suite sends messages in 65,536 of them, and nobody else comes near.
const MAX_FRAGMENTS: u32 = 100_000;

/// A stream that is read no further once a message has more fragments than that.
///
/// A message is bounded in bytes, but a fragment may be empty, and the library puts messages together without saying of
/// how many: a peer could keep it busy for ever with one that never ends. So the frames are counted where they come in,
/// by their headers.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    frames: Frames,
}

/// What a stream is not read any further for.
#[derive(Debug, thiserror::Error)]
#[error("the message has more than {MAX_FRAGMENTS} fragments")]
pub(crate) struct TooManyFragments;

impl<S> Counted<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if !this.frames.too_many() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            this.frames.pass(&buffer.filled()[before..]);
        }
        if this.frames.too_many() {
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::other(TooManyFragments)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where a stream is among its frames. What is wrong with one is the library's to say: here it only has to be passed.
#[derive(Debug, Default)]
struct Frames {
    /// Of the header that is being read, without its mask.
    header: [u8; 10],
    known: u8,
    /// How much is left of the frame after its header: the mask, and the payload.
    left: u64,
    /// How many of the message under way have passed.
    fragments: u32,
}

impl Frames {
    fn too_many(&self) -> bool {
        self.fragments > MAX_FRAGMENTS
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            if self.left > 0 {
                let passed = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            self.header[usize::from(self.known)] = *first;
            self.known += 1;
            bytes = rest;
            if let Some(left) = self.after_header() {
                (self.known, self.left) = (0, left);
                self.count();
            }
        }
    }

    /// What follows the header, once all of it is known.
    fn after_header(&self) -> Option<u64> {
        let [_, length, long @ ..] = self.header;
        let payload = match (self.known, length & 0x7f) {
            (2, short @ ..126) => u64::from(short),
            (4, 126) => u64::from(u16::from_be_bytes([long[0], long[1]])),
            (10, 127) => u64::from_be_bytes(long),
            _ => return None,
        };
        Some(payload.saturating_add(if length & 0x80 == 0 { 0 } else { 4 }))
    }

    /// Counts the frame whose header this is. Pings and the like may come between the fragments of a message.
    fn count(&mut self) {
        let (is_last, is_control) = (self.header[0] & 0x80 != 0, self.header[0] & 0x08 != 0);
        if !is_control {
            self.fragments = if is_last { 0 } else { self.fragments.saturating_add(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Rule: every frame is counted once, wherever the stream is cut, and nothing in a payload is taken for one.

    use tokio_tungstenite::tungstenite::protocol::frame::Frame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

    use super::*;

    fn frame(length: usize, opcode: OpCode, last: bool, masked: bool) -> Vec<u8> {
        // Each byte of it would begin a fragment of its own.
        let mut frame = Frame::message(vec![0; length], OpCode::Data(Data::Continue), last);
        (frame.header_mut().opcode, frame.header_mut().mask) = (opcode, masked.then_some([0; 4]));
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        bytes
    }

    fn fragment(length: usize, masked: bool) -> Vec<u8> {
        frame(length, OpCode::Data(Data::Continue), false, masked)
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: u32) {
        let bytes = frames.concat();
        for at_once in [1, 2, 3, 7, bytes.len()] {
            let mut counted = Frames::default();
            for piece in bytes.chunks(at_once) {
                counted.pass(piece);
            }
            assert_eq!((counted.fragments, counted.left, counted.known), (expected, 0, 0), "{at_once} at once");
        }
    }

    #[test]
    fn frames_of_any_length_are_passed() {
        for masked in [true, false] {
            let lengths = [0, 1, 125, 126, 127, 65_535, 65_536];
            check(&lengths.map(|length| fragment(length, masked)), 7);
        }
    }

    #[test]
    fn the_last_one_ends_a_message_and_control_frames_do_not() {
        let last = frame(5, OpCode::Data(Data::Continue), true, true);
        let whole = frame(5, OpCode::Data(Data::Text), true, true);
        let ping = frame(5, OpCode::Control(Control::Ping), true, true);
        check(&[fragment(3, true), ping.clone(), fragment(0, true)], 2);
        check(&[fragment(3, true), ping.clone(), last.clone()], 0);
        check(&[whole, ping, fragment(3, true), last, fragment(0, true)], 1);
    }

    #[test]
    fn a_frame_that_claims_to_be_endless_is_passed_for_ever() {
        let mut frames = Frames::default();
        frames.pass(&[0x00, 0xff]);
        frames.pass(&[0xff; 8]);
        frames.pass(&[0; 100]);
        assert_eq!((frames.fragments, frames.left), (1, u64::MAX - 100));
    }

    #[tokio::test]
    async fn nothing_is_read_after_one_too_many() {
        use tokio::io::AsyncReadExt as _;
        let (enough, one_more) = (fragment(0, true).repeat(MAX_FRAGMENTS as usize), fragment(0, true));
        let mut stream = Counted::new(&*enough);
        let mut read = Vec::new();
        assert_eq!(stream.read_to_end(&mut read).await.unwrap(), enough.len());
        let bytes = [enough, one_more].concat();
        let mut stream = Counted::new(&*bytes);
        for _ in 0..2 {
            let error = stream.read_to_end(&mut read).await.unwrap_err();
            assert!(matches!(error.get_ref(), Some(why) if why.is::<TooManyFragments>()), "{error}");
        }
    }
}
