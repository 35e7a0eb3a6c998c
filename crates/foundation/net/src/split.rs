//! Splits large frames into pieces, as if the peer had sent its message in fragments.
//!
//! The library allocates the whole frame as soon as it has read the header. A peer could make it
//! reserve megabytes with a dozen bytes. The library also keeps that buffer as long as the
//! connection lives, so one large message would cost its size permanently.
//!
//! For a message in fragments, the buffer grows as the fragments arrive. It is freed with the
//! message.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::frames::Header;
use crate::source::Source;

/// The largest piece. It is a multiple of the mask length, so the mask is aligned in each piece.
pub(crate) const PIECE: u64 = 16 * 1024;

/// A frame that is passed on in pieces.
#[derive(Debug)]
pub(crate) struct Splitting {
    /// The size of the message in bytes, including this frame.
    message: u64,
    /// The rest of the frame, as a frame header.
    rest: Header,
    /// The remaining bytes of the current piece.
    piece: u64,
}

impl Splitting {
    /// Starts to split a frame. `before` is the number of earlier bytes of its message.
    pub(crate) fn new(frame: Header, before: u64) -> Self {
        Self { message: before.saturating_add(frame.payload), rest: frame, piece: 0 }
    }

    /// Returns the number of bytes of the message that were passed on.
    pub(crate) fn passed(&self) -> u64 {
        self.message - self.rest.payload - self.piece
    }

    /// Whether the whole frame was passed on.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.payload == 0 && self.piece == 0
    }

    /// Passes on the next bytes. Returns `false` at the end of the stream.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Source<impl AsyncRead + Unpin>,
        buffer: &mut ReadBuf<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<io::Result<bool>> {
        if self.piece > 0 {
            let read = ready!(source.poll_pass(cx, buffer, self.piece))?;
            self.piece -= read as u64;
            return Poll::Ready(Ok(read > 0));
        }
        self.piece = self.rest.payload.min(PIECE);
        self.rest.payload -= self.piece;
        let piece = Header { payload: self.piece, ..self.rest };
        if self.rest.payload == 0 { piece } else { piece.not_last() }.write(out);
        self.rest = self.rest.continued();
        Poll::Ready(Ok(true))
    }
}
