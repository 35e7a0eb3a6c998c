//! Tracks the position of a stream among its frames, using only the frame headers.
//!
//! The library reports invalid frames. This module only finds out where the next frame begins.

use crate::split::PIECE;

/// The maximum number of fragments of one message.
///
/// Autobahn's test suite sends messages with 65,536 fragments. No other client comes near that
/// number.
const MAX_FRAGMENTS: u32 = 100_000;

/// The stream is not read any further because a message has too many fragments.
#[derive(Debug, thiserror::Error)]
#[error("the message has more than {MAX_FRAGMENTS} fragments")]
pub(crate) struct TooManyFragments;

/// The header of a frame, including its mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The first byte: the final bit, the reserved bits and the opcode.
    pub(crate) first: u8,
    pub(crate) mask: Option<[u8; 4]>,
    pub(crate) payload: u64,
}

impl Header {
    /// The size of the longest header.
    pub(crate) const MAX: usize = 14;
    const LAST: u8 = 0x80;
    const CONTROL: u8 = 0x08;
    const MASKED: u8 = 0x80;

    /// Reads the header at the beginning of `bytes`, and returns it with its length.
    ///
    /// Returns `None` if the header is incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&[first, length], rest) = bytes.split_first_chunk()?;
        let (payload, rest) = match length & !Self::MASKED {
            0x7e => rest
                .split_first_chunk()
                .map(|(long, rest)| (u16::from_be_bytes(*long).into(), rest))?,
            0x7f => {
                rest.split_first_chunk().map(|(long, rest)| (u64::from_be_bytes(*long), rest))?
            }
            short => (short.into(), rest),
        };
        let (mask, rest) = match length & Self::MASKED {
            0 => (None, rest),
            _ => rest.split_first_chunk().map(|(mask, rest)| (Some(*mask), rest))?,
        };
        Some((Self { first, mask, payload }, bytes.len() - rest.len()))
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let masked = if self.mask.is_some() { Self::MASKED } else { 0 };
        to.push(self.first);
        match self.payload {
            short @ ..126 => to.push(masked | short as u8),
            long @ 126..=0xffff => {
                to.push(masked | 0x7e);
                to.extend((long as u16).to_be_bytes());
            }
            longest => {
                to.push(masked | 0x7f);
                to.extend(longest.to_be_bytes());
            }
        }
        to.extend(self.mask.into_iter().flatten());
    }

    /// Returns the header of a continuation frame. Its mask is zero and leaves the payload
    /// unchanged.
    pub(crate) fn more(payload: u64) -> Self {
        Self { first: 0, mask: Some([0; 4]), payload }
    }

    pub(crate) fn last(self) -> Self {
        Self { first: self.first | Self::LAST, ..self }
    }

    pub(crate) fn not_last(self) -> Self {
        Self { first: self.first & !Self::LAST, ..self }
    }

    /// Returns the same header for a continuation frame.
    pub(crate) fn continued(self) -> Self {
        Self { first: self.first & Self::LAST, ..self }
    }

    pub(crate) fn is_last(&self) -> bool {
        self.first & Self::LAST != 0
    }

    /// Whether this is a control frame, such as a ping. It may arrive between fragments of a
    /// message.
    pub(crate) fn is_control(&self) -> bool {
        self.first & Self::CONTROL != 0
    }
}

/// The position of a stream among its frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The remaining payload bytes of the current frame.
    left: u64,
    /// The number of fragments of the current message so far.
    fragments: u32,
    /// The size of the current message in bytes, according to the frame headers read so far.
    pub(crate) message: u64,
    /// The maximum size of a message in bytes.
    pub(crate) max_message: u64,
}

/// The result of scanning some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All bytes belong to complete headers and their payloads.
    All,
    /// An incomplete header begins at this offset.
    Header(usize),
    /// A frame that must be split begins at this offset.
    Large(usize),
    /// A frame that makes its message too large begins at this offset.
    TooLarge(usize),
}

impl Frames {
    pub(crate) fn new(max_message: u64) -> Self {
        Self { left: 0, fragments: 0, message: 0, max_message }
    }

    /// Scans the next bytes, up to the first byte that cannot be passed on unchanged.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<Seen, TooManyFragments> {
        let mut at = 0;
        loop {
            if self.fragments > MAX_FRAGMENTS {
                return Err(TooManyFragments);
            }
            let passed = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
            self.left -= passed as u64;
            at += passed;
            if at == bytes.len() {
                return Ok(Seen::All);
            }
            let Some((header, length)) = Header::read(&bytes[at..]) else {
                return Ok(Seen::Header(at));
            };
            if self.grows_too_large(&header) {
                return Ok(Seen::TooLarge(at));
            }
            if header.payload > PIECE && !header.is_control() {
                return Ok(Seen::Large(at));
            }
            self.enter(&header);
            self.left = header.payload;
            at += length;
        }
    }

    /// Returns the number of bytes that have arrived of the current message.
    ///
    /// The last frame of a message is not counted.
    pub(crate) fn message_so_far(&self) -> u64 {
        self.message.saturating_sub(self.left)
    }

    fn grows_too_large(&self, header: &Header) -> bool {
        !header.is_control() && self.message.saturating_add(header.payload) > self.max_message
    }

    /// Counts a frame and the bytes that it adds to its message.
    fn enter(&mut self, header: &Header) {
        if header.is_last() && !header.is_control() {
            (self.fragments, self.message) = (0, 0);
        } else if !header.is_control() {
            self.fragments = self.fragments.saturating_add(1);
            self.message = self.message.saturating_add(header.payload);
        }
    }

    /// Counts a frame with a payload that another component reads.
    pub(crate) fn enter_other(&mut self, header: &Header) -> Result<(), TooManyFragments> {
        self.enter(header);
        if self.fragments > MAX_FRAGMENTS { Err(TooManyFragments) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Rule: every frame is counted once wherever the stream is split, and payload is never read as
    //! a frame.

    use super::*;

    pub(crate) const TEXT: u8 = 1;
    pub(crate) const PING: u8 = 9;

    /// Returns a frame with this payload, masked like a client frame.
    pub(crate) fn frame(kind: u8, last: bool, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let header = Header { first: kind, mask: Some(mask), payload: payload.len() as u64 };
        let mut bytes = Vec::new();
        if last { header.last() } else { header }.write(&mut bytes);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    fn fragment(length: usize, masked: bool) -> Vec<u8> {
        let header = Header { first: 0, mask: masked.then_some([0; 4]), payload: length as u64 };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        // Each byte of this payload would begin another fragment if it were read as a header.
        bytes.resize(bytes.len() + length, 0);
        bytes
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: u32) {
        let bytes = frames.concat();
        for at_once in [1, 2, 3, 7, bytes.len()] {
            let mut counted = Frames::new(u64::MAX);
            let mut unread = Vec::new();
            for piece in bytes.chunks(at_once) {
                unread.extend_from_slice(piece);
                match counted.pass(&unread).unwrap() {
                    Seen::All => unread.clear(),
                    Seen::Header(at) => drop(unread.drain(..at)),
                    seen => panic!("{seen:?}"),
                }
            }
            assert_eq!(
                (counted.fragments, counted.left, &*unread),
                (expected, 0, &[][..]),
                "{at_once} at once"
            );
        }
    }

    #[test]
    fn frames_of_any_length_are_passed() {
        for masked in [true, false] {
            let lengths = [0, 1, 125, 126, 127, PIECE as usize];
            check(&lengths.map(|length| fragment(length, masked)), 6);
        }
    }

    #[test]
    fn the_last_one_ends_a_message_and_control_frames_do_not() {
        let (last, whole, ping) =
            (frame(0, true, b"12345"), frame(TEXT, true, b"12345"), frame(PING, true, b"12345"));
        check(&[fragment(3, true), ping.clone(), fragment(0, true)], 2);
        check(&[fragment(3, true), ping.clone(), last.clone()], 0);
        check(&[whole, ping, fragment(3, true), last, fragment(0, true)], 1);
    }

    #[test]
    fn a_header_is_read_as_it_was_written_once_all_of_it_is_there() {
        for payload in [0, 125, 126, 65_535, 65_536, u64::MAX] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let header = Header { first: TEXT, mask, payload }.last();
                let mut bytes = Vec::new();
                header.write(&mut bytes);
                assert!(bytes.len() <= Header::MAX);
                for cut in 0..bytes.len() {
                    assert_eq!(Header::read(&bytes[..cut]), None);
                }
                assert_eq!(
                    Header::read(&[&bytes[..], b"more"].concat()),
                    Some((header, bytes.len()))
                );
            }
        }
    }

    #[test]
    fn a_message_is_measured_over_all_its_fragments() {
        let whole = frame(TEXT, true, b"1234567890");
        let parts = [
            frame(TEXT, false, b"12345"),
            frame(PING, true, b"not a part of it"),
            frame(0, true, b"67890"),
        ];
        let mut frames = Frames::new(10);
        for bytes in [whole, parts.concat()] {
            assert_eq!(frames.pass(&bytes).unwrap(), Seen::All, "as large as it may be");
        }
        let more = [frame(TEXT, false, b"12345"), frame(0, true, b"678901")];
        assert_eq!(frames.pass(&more.concat()).unwrap(), Seen::TooLarge(more[0].len()));
        let mut endless = Vec::new();
        Header { payload: u64::MAX, ..Header::more(0) }.write(&mut endless);
        assert_eq!(frames.pass(&endless).unwrap(), Seen::TooLarge(0));
    }
}
