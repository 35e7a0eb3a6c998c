//! Cuts messages that exceed the size limit.
//!
//! The beginning of such a message is passed on. The rest is read and dropped as it arrives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::frames::Header;
use crate::source::{Source, clamped};

/// The number of bytes of a cut message that are passed on, enough to identify the message.
///
/// More is passed on if more had been read before the message turned out to be too large.
const BEGINNING: u64 = 16 * 1024;

/// A message is read to its end if it has at most this many times the size limit.
///
/// A larger message ends the connection.
pub(crate) const MAX_TIMES: u64 = 16;

/// The maximum number of bytes that follow the first byte of a UTF-8 character.
///
/// The beginning of a text must end with a whole character to be valid. It may therefore exceed the
/// size limit by this number of bytes.
pub(crate) const REST_OF_CHARACTER: u8 = 3;

/// The size of the buffer for bytes that are read and dropped.
const DROPPED_AT_ONCE: usize = 8 * 1024;

/// Reports which messages are only the beginning of a larger message.
///
/// If messages of the stream are not cut, it never reports one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cuts(Option<Arc<AtomicU64>>);

impl Cuts {
    pub(crate) fn told() -> Self {
        Self(Some(Arc::default()))
    }

    pub(crate) fn are_told(&self) -> bool {
        self.0.is_some()
    }

    /// Records that the next message was cut, and how many bytes it had.
    ///
    /// Call this before the library reads the end of the beginning, with no data after it. The cut
    /// message is then the next one that the library returns.
    pub(crate) fn set(&self, bytes: u64) {
        if let Some(cut) = &self.0 {
            cut.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the size of the last message that was read, if only its beginning was passed on.
    pub(crate) fn take(&self) -> Option<u64> {
        self.0.as_ref().map(|cut| cut.swap(0, Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// The stream is not read any further because a message is too large.
#[derive(Debug, thiserror::Error)]
#[error("the message is larger than this gateway accepts")]
pub(crate) struct TooLarge;

/// A message that is being cut, and its current frame.
#[derive(Debug)]
pub(crate) struct Cutting {
    /// The size of the message in bytes, according to the frame headers read so far.
    pub(crate) bytes: u64,
    max_bytes: u64,
    /// The bytes that were passed on before the message turned out to be too large.
    pub(crate) passed: u64,
    /// The bytes that may still be passed on, and how many more to complete a character.
    keep: u64,
    rest_of_character: u8,
    frame: Header,
    /// The remaining bytes of the frame's payload, and how many of them to pass on.
    left: u64,
    pass: u64,
}

/// The progress of a message that is being cut.
pub(crate) enum Step {
    /// The frame has more data.
    On,
    /// The frame has ended, and another frame of the message follows.
    Frame,
    /// The message has ended.
    Message,
    /// The stream has ended.
    Stream,
}

impl Cutting {
    /// Starts to cut a message. `passed` is the number of its bytes that were already passed on.
    pub(crate) fn new(max_message: u64, passed: u64) -> Self {
        Self {
            bytes: passed,
            passed,
            max_bytes: max_message.saturating_mul(MAX_TIMES),
            keep: BEGINNING.min(max_message).saturating_sub(passed),
            rest_of_character: REST_OF_CHARACTER,
            frame: Header::more(0),
            left: 0,
            pass: 0,
        }
    }

    /// Starts the next frame.
    ///
    /// The frame is passed on with its original bits, errors included, but with a shorter payload.
    /// A data frame is never marked as the last one.
    pub(crate) fn enter(&mut self, header: Header, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        (self.frame, self.left) = (header, header.payload);
        if header.is_control() {
            self.pass = header.payload;
            header.write(out);
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(header.payload);
        if self.bytes > self.max_bytes {
            return Err(TooLarge);
        }
        self.pass = header.payload.min(self.keep);
        self.keep -= self.pass;
        Header { payload: self.pass, ..header.not_last() }.write(out);
        Ok(())
    }

    /// Passes on or drops the next bytes of the frame.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<impl AsyncRead + Unpin>,
        buffer: &mut ReadBuf<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<io::Result<Step>> {
        let read = if self.pass > 0 {
            let read = ready!(source.poll_pass(cx, buffer, self.pass))?;
            self.pass -= read as u64;
            read
        } else if self.left > 0 && self.rest_of_character > 0 {
            let mut byte = [0];
            let read = ready!(source.poll_some(cx, &mut byte))?;
            self.end_character(byte[0], out);
            read
        } else if self.left > 0 {
            let mut dropped = [0; DROPPED_AT_ONCE];
            let most = clamped(self.left, DROPPED_AT_ONCE);
            ready!(source.poll_some(cx, &mut dropped[..most]))?
        } else if self.frame.is_last() && !self.frame.is_control() {
            return Poll::Ready(Ok(Step::Message));
        } else {
            return Poll::Ready(Ok(Step::Frame));
        };
        self.left -= read as u64;
        Poll::Ready(Ok(if read == 0 { Step::Stream } else { Step::On }))
    }

    /// Passes on a byte if it continues a character that has already begun.
    ///
    /// The byte gets a frame of its own. The length of the character was not known when the
    /// previous frame was started.
    fn end_character(&mut self, byte: u8, out: &mut Vec<u8>) {
        let at = (self.frame.payload - self.left) % 4;
        let byte = byte ^ self.frame.mask.unwrap_or_default()[at as usize];
        if byte & 0b1100_0000 == 0b1000_0000 {
            self.rest_of_character -= 1;
            Header::more(1).write(out);
            out.push(byte);
        } else {
            self.rest_of_character = 0;
        }
    }
}
