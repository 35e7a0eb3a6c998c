//! The output of a command: as text, in order, and bounded.

/// The maximum number of characters that are kept.
pub(super) const MAX_CHARS: usize = 200_000;
/// The number of last characters that are always shown.
pub(super) const TAIL_CHARS: usize = 4_000;

/// Decodes bytes into text as they arrive. A character that is split between two reads stays whole;
/// invalid bytes become U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of an incomplete character.
    open: Vec<u8>,
}

impl Decoder {
    /// Appends the characters that these bytes complete.
    pub(super) fn push(&mut self, mut bytes: &[u8], text: &mut String) {
        // The incomplete character takes one byte at a time, at most three in all.
        while !self.open.is_empty()
            && let Some((first, rest)) = bytes.split_first()
        {
            self.open.push(*first);
            bytes = rest;
            let joined = std::mem::take(&mut self.open);
            self.append(&joined, text);
        }
        self.append(bytes, text);
    }

    /// Ends the input. An incomplete character becomes U+FFFD.
    pub(super) fn finish(&mut self, text: &mut String) {
        if !std::mem::take(&mut self.open).is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn append(&mut self, mut bytes: &[u8], text: &mut String) {
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(valid) => return text.push_str(valid),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            text.push_str(std::str::from_utf8(valid).unwrap_or_default());
            let Some(length) = error.error_len() else { return self.open.extend_from_slice(rest) };
            text.push(char::REPLACEMENT_CHARACTER);
            bytes = &rest[length..];
        }
    }
}

/// The end of a text, with a maximum number of characters.
#[derive(Debug)]
pub(super) struct Capture {
    text: String,
    /// The number of characters in the text.
    chars: usize,
    max: usize,
    truncated: bool,
    /// The number of lines that ended in the dropped part.
    dropped_lines: usize,
}

impl Default for Capture {
    fn default() -> Self {
        Self::new(MAX_CHARS)
    }
}

impl Capture {
    fn new(max: usize) -> Self {
        Self { text: String::new(), chars: 0, max, truncated: false, dropped_lines: 0 }
    }

    pub(super) fn push(&mut self, text: &str) {
        let new = text.chars().count();
        if new >= self.max {
            self.truncated |= self.chars > 0 || new > self.max;
            let kept = last_chars(text, new, self.max);
            self.dropped_lines += lines(&self.text) + lines(&text[..text.len() - kept.len()]);
            self.text.clear();
            self.text.push_str(kept);
            self.chars = self.max;
            return;
        }
        self.text.push_str(text);
        self.chars += new;
        // The text may exceed the maximum by half, so that it is not moved for every few bytes.
        if self.chars > self.max + self.max / 2 {
            self.trim();
        }
    }

    /// Returns the whole kept text.
    pub(super) fn text(&mut self) -> &str {
        self.trim();
        &self.text
    }

    pub(super) fn tail(&self) -> &str {
        last_chars(&self.text, self.chars, TAIL_CHARS.min(self.max))
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.text.capacity()
    }

    pub(super) fn chars(&self) -> usize {
        self.chars.min(self.max)
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated || self.chars > self.max
    }

    /// Returns the number of lines before those of [`Self::text`]. The first line of that text may
    /// lack its beginning.
    pub(super) fn dropped_lines(&self) -> usize {
        self.dropped_lines
    }

    /// Frees unused capacity after the last write.
    pub(super) fn seal(&mut self) {
        self.trim();
        self.text.shrink_to_fit();
    }

    fn trim(&mut self) {
        if self.chars > self.max {
            let kept = last_chars(&self.text, self.chars, self.max).len();
            let dropped = self.text.len() - kept;
            self.dropped_lines += lines(&self.text[..dropped]);
            self.text.drain(..dropped);
            self.chars = self.max;
            self.truncated = true;
        }
    }
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Returns the last `wanted` characters of a text with `chars` characters.
fn last_chars(text: &str, chars: usize, wanted: usize) -> &str {
    if chars <= wanted {
        return text;
    }
    if text.len() == chars {
        return &text[chars - wanted..];
    }
    let start = text.char_indices().rev().nth(wanted.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> String {
        let (mut decoder, mut text) = (Decoder::default(), String::new());
        for piece in pieces {
            decoder.push(piece, &mut text);
        }
        decoder.finish(&mut text);
        text
    }

    #[test]
    fn a_character_that_is_split_stays_whole() {
        assert_eq!(decode(&[b"a\xf0", b"\x9f\x98", b"\x80b"]), "a😀b");
        assert_eq!(decode(&[b"\xe2\x82", b"x"]), "\u{fffd}x");
        assert_eq!(decode(&[b"\xe2", b"\xe2\x82\xac"]), "\u{fffd}€");
        assert_eq!(decode(&[b"x\xe2\x82"]), "x\u{fffd}");
        assert_eq!(decode(&[b"\xff\xfe"]), "\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_text_as_the_whole(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xf0), Just(0x9f), Just(0x98), Just(0x80)], 0..60),
            size in 1_usize..7,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(decode(&pieces), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn the_last_characters_are_kept(pieces in proptest::collection::vec("[a-zé😀\n]{0,19}", 0..20)) {
            let mut capture = Capture::new(10);
            for piece in &pieces {
                capture.push(piece);
            }
            let all: Vec<char> = pieces.concat().chars().collect();
            let kept: String = all[all.len().saturating_sub(10)..].iter().collect();
            prop_assert_eq!(capture.truncated(), all.len() > 10);
            prop_assert_eq!(capture.chars(), all.len().min(10));
            prop_assert_eq!(capture.tail(), &kept);
            prop_assert_eq!(capture.text(), &kept);
            let lines = |text: &[char]| text.iter().filter(|character| **character == '\n').count();
            prop_assert_eq!(capture.dropped_lines(), lines(&all[..all.len().saturating_sub(10)]));
        }
    }
}
