//! Large frames reach the library in pieces, as if the peer had sent its message in fragments.
//!
//! The library makes room for all of a frame as soon as it has read the header, so that a peer could have it reserve megabytes
//! by a dozen bytes; and it keeps that room for as long as the connection lives, so that one large message would cost as much
//! as that for ever. A message that comes in fragments has its room as it comes, and takes it along when it goes.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::frames::Header;
use crate::source::Source;

/// The largest piece. A multiple of the length of a mask, so that each piece begins where the mask does.
pub(crate) const PIECE: u64 = 16 * 1024;

/// A frame that is passed on in pieces.
#[derive(Debug)]
pub(crate) struct Splitting {
    /// How many bytes its message will have with it.
    message: u64,
    /// What is left of it, as a frame.
    rest: Header,
    /// What is left of the piece under way.
    piece: u64,
}

impl Splitting {
    /// Of a message that has so many bytes without it.
    pub(crate) fn new(frame: Header, before: u64) -> Self {
        Self { message: before.saturating_add(frame.payload), rest: frame, piece: 0 }
    }

    /// How much of its message was passed on.
    pub(crate) fn passed(&self) -> u64 {
        self.message - self.rest.payload - self.piece
    }

    /// Whether all of it was passed on.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.payload == 0 && self.piece == 0
    }

    /// Passes on what comes next; `false` at the end of the stream.
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
