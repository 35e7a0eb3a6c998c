//! Messages that are larger than they may be: their beginnings are passed on, the rest is read and dropped as it comes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::frames::Header;
use crate::source::{Source, clamped};

/// How much of a message that is cut is passed on, unless more of it was before it was known to be too large. Enough to tell
/// what it is.
const BEGINNING: u64 = 16 * 1024;

/// A message is read to its end up to so many times the size that it may have, and no further.
pub(crate) const MAX_TIMES: u64 = 16;

/// So many bytes a character has at most after its first. The beginning of a text ends with a whole character, or it would
/// be none; so it may be longer by these than a message may be.
pub(crate) const REST_OF_CHARACTER: u8 = 3;

/// So many bytes of what nobody wants are read at once.
const DROPPED_AT_ONCE: usize = 8 * 1024;

/// Tells which messages are the beginnings of larger ones. It never does for a stream whose messages are not cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cuts(Option<Arc<AtomicU64>>);

impl Cuts {
    pub(crate) fn told() -> Self {
        Self(Some(Arc::default()))
    }

    pub(crate) fn are_told(&self) -> bool {
        self.0.is_some()
    }

    /// To be called before the library gets the end of the beginning, and with nothing behind it: so it is that message
    /// which is read next.
    pub(crate) fn set(&self, bytes: u64) {
        if let Some(cut) = &self.0 {
            cut.store(bytes, Ordering::Relaxed);
        }
    }

    /// How many bytes the message had that was read last, if only its beginning was passed on.
    pub(crate) fn take(&self) -> Option<u64> {
        self.0.as_ref().map(|cut| cut.swap(0, Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// What a stream is not read any further for.
#[derive(Debug, thiserror::Error)]
#[error("the message is larger than this gateway accepts")]
pub(crate) struct TooLarge;

/// A message that is being cut, and of it the frame that is being read.
#[derive(Debug)]
pub(crate) struct Cutting {
    /// How many bytes it has, as far as its headers have said.
    pub(crate) bytes: u64,
    max_bytes: u64,
    /// How many bytes of it were passed on before it was known to be too large.
    pub(crate) passed: u64,
    /// How many bytes of it may be passed on now, and how many more to end a character.
    keep: u64,
    rest_of_character: u8,
    frame: Header,
    /// What is left of the frame's payload, and how much of that is to be passed on.
    left: u64,
    pass: u64,
}

/// How far it has come with a message.
pub(crate) enum Step {
    /// There is more to come of the frame.
    On,
    /// The frame has ended, and another one is to follow.
    Frame,
    /// The message has ended.
    Message,
    /// The stream has ended.
    Stream,
}

impl Cutting {
    /// So many bytes of the message were passed on before it was known to be too large.
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

    /// Goes on with the next frame. It is passed on as what it is, with all that may be wrong with it, but shorter; and not
    /// as the last one.
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

    /// Passes on or drops what comes next of the frame.
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

    /// Passes a byte on if a character that has begun goes on with it, in a frame of its own: which one would be the last
    /// was not known when the others' frame began.
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
