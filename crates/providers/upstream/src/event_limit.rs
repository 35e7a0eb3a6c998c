//! Measures the events of an SSE stream as they pass. Limits the size of each, and counts it in the
//! budget for answers.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sa_limits::budget::Refused;
use sa_limits::received::Received;

/// The reason why an event stream ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error(transparent)]
    Broken(reqwest::Error),
    #[error("an event is too long")]
    TooLong,
    #[error(transparent)]
    Refused(Refused),
}

pub(crate) struct EventLimit {
    max_bytes: usize,
    /// The bytes that a reader buffers for the current event, without its current line.
    event: usize,
    line: usize,
    is_comment: bool,
    after_return: bool,
    over: bool,
    /// The counter of the current event. The reader of the event takes it.
    received: Arc<Mutex<Received>>,
}

impl EventLimit {
    pub(crate) fn new(max_bytes: usize, received: Arc<Mutex<Received>>) -> Self {
        Self {
            max_bytes,
            event: 0,
            line: 0,
            is_comment: false,
            after_return: false,
            over: false,
            received,
        }
    }

    /// Returns the piece while every event fits, then one error, then `None`.
    pub(crate) fn pass(
        &mut self,
        piece: Result<Bytes, reqwest::Error>,
    ) -> Option<Result<Bytes, Cut>> {
        if self.over {
            return None;
        }
        let passed = piece.map_err(Cut::Broken).and_then(|piece| {
            if !self.fits(&piece) {
                return Err(Cut::TooLong);
            }
            let counted = self.received.lock().grow(self.event + self.line);
            counted.map(|()| piece).map_err(Cut::Refused)
        });
        self.over = passed.is_err();
        Some(passed)
    }

    fn fits(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            // A line ends with `\r`, `\n` or `\r\n`.
            let is_second_half = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => self.end_line(),
                byte => {
                    self.is_comment = if self.line == 0 { byte == b':' } else { self.is_comment };
                    self.line += 1;
                }
            }
            if self.event + self.line > self.max_bytes {
                return false;
            }
        }
        true
    }

    fn end_line(&mut self) {
        if self.line == 0 {
            self.event = 0;
        } else if !self.is_comment {
            self.event += self.line + 1;
        }
        self.line = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncounted() -> Arc<Mutex<Received>> {
        Arc::new(Mutex::new(Received::uncounted()))
    }

    /// Returns how many bytes of this text, repeated and sent one by one, pass before the limit
    /// is exceeded; `None` if it never is.
    fn passes(max_bytes: usize, text: &str) -> Option<usize> {
        let mut event_limit = EventLimit::new(max_bytes, uncounted());
        text.bytes().cycle().take(10_000).position(|byte| !event_limit.fits(&[byte]))
    }

    #[test]
    fn events_are_measured_one_by_one_however_their_lines_end() {
        for end in ["\n", "\r", "\r\n"] {
            assert_eq!(
                passes(40, &format!("data: 0123456789{end}{end}")),
                None,
                "each fits by itself: {end:?}"
            );
            assert!(
                passes(40, &format!("data: 0123456789{end}")).is_some(),
                "one of many lines: {end:?}"
            );
            assert_eq!(
                passes(40, &format!(": still here{end}")),
                None,
                "comments are not kept: {end:?}"
            );
        }
        assert_eq!(passes(40, "x"), Some(40));
    }

    fn first_too_long<'a>(max_bytes: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut event_limit = EventLimit::new(max_bytes, uncounted());
        pieces.into_iter().any(|piece| !event_limit.fits(piece))
    }

    const WORDS: &[&str] = &[
        "data:",
        "data: 0123456789",
        ":",
        ": ping",
        "id: 1",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
    ];

    proptest::proptest! {
        #[test]
        fn chunk_boundaries_do_not_change_the_limit((stream, pieces) in sa_hostile::pieces(sa_hostile::text(WORDS)), max_bytes in 0_usize..60) {
            let whole = first_too_long(max_bytes, [stream.as_bytes()]);
            proptest::prop_assert_eq!(whole, first_too_long(max_bytes, pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn an_event_that_fits_is_never_too_long(lines in proptest::collection::vec("[a-z]{0,9}", 1..5), count in 1_usize..5) {
            let event: String = lines.iter().map(|line| format!("data:{line}\n")).chain(["\n".to_owned()]).collect();
            proptest::prop_assert!(!first_too_long(event.len(), [event.repeat(count).as_bytes()]));
            proptest::prop_assert!(first_too_long(event.len() - 3, [event.as_bytes()]));
        }
    }
}
