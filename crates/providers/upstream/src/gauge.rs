//! Measures a stream of events as it passes, so that none of them grows beyond bounds.

use bytes::Bytes;

/// Why a stream of events ends before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error(transparent)]
    Broken(reqwest::Error),
    #[error("an event is too long")]
    TooLong,
}

pub(crate) struct Gauge {
    most: usize,
    /// What a reader keeps of the event that has begun, without the line that has.
    event: usize,
    line: usize,
    is_comment: bool,
    after_return: bool,
    over: bool,
}

impl Gauge {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, event: 0, line: 0, is_comment: false, after_return: false, over: false }
    }

    /// The piece itself as long as it fits, then why it does not, then nothing.
    pub(crate) fn pass(&mut self, piece: Result<Bytes, reqwest::Error>) -> Option<Result<Bytes, Cut>> {
        if self.over {
            return None;
        }
        let passed =
            piece.map_err(Cut::Broken).and_then(|piece| if self.fits(&piece) { Ok(piece) } else { Err(Cut::TooLong) });
        self.over = passed.is_err();
        Some(passed)
    }

    fn fits(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            // A line ends with either of them, or with both.
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
            if self.event + self.line > self.most {
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

    /// How many of these bytes, sent over and over one by one, pass before they are too much; `None` if they never are.
    fn passes(most: usize, text: &str) -> Option<usize> {
        let mut gauge = Gauge::new(most);
        text.bytes().cycle().take(10_000).position(|byte| !gauge.fits(&[byte]))
    }

    #[test]
    fn events_are_measured_one_by_one_however_their_lines_end() {
        for end in ["\n", "\r", "\r\n"] {
            assert_eq!(passes(40, &format!("data: 0123456789{end}{end}")), None, "each fits by itself: {end:?}");
            assert!(passes(40, &format!("data: 0123456789{end}")).is_some(), "one of many lines: {end:?}");
            assert_eq!(passes(40, &format!(": still here{end}")), None, "comments are not kept: {end:?}");
        }
        assert_eq!(passes(40, "x"), Some(40));
    }

    fn first_too_long<'a>(most: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut gauge = Gauge::new(most);
        pieces.into_iter().any(|piece| !gauge.fits(piece))
    }

    const WORDS: &[&str] =
        &["data:", "data: 0123456789", ":", ": ping", "id: 1", "\n", "\r", "\r\n", "\n\n", "\r\n\r\n"];

    proptest::proptest! {
        #[test]
        fn no_cut_changes_what_is_too_long((stream, pieces) in sa_hostile::pieces(sa_hostile::text(WORDS)), most in 0_usize..60) {
            let whole = first_too_long(most, [stream.as_bytes()]);
            proptest::prop_assert_eq!(whole, first_too_long(most, pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn an_event_that_fits_is_never_too_long(lines in proptest::collection::vec("[a-z]{0,9}", 1..5), count in 1_usize..5) {
            let event: String = lines.iter().map(|line| format!("data:{line}\n")).chain(["\n".to_owned()]).collect();
            proptest::prop_assert!(!first_too_long(event.len(), [event.repeat(count).as_bytes()]));
            proptest::prop_assert!(first_too_long(event.len() - 3, [event.as_bytes()]));
        }
    }
}
