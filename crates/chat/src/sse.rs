//! Reading server-sent events as they come, cut anywhere.

/// The longest event. An image in base64 fits.
const MAX_EVENT: usize = 32 << 20;

/// The events of a stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    buffer: Vec<u8>,
    /// How far the buffer has been looked through for the end of a line.
    looked: usize,
    data: String,
    /// Whether the last line ended in a carriage return, to which a line feed may still belong.
    returned: bool,
    /// Whether a line has been read: the first may begin with a byte order mark.
    begun: bool,
}

/// An event without an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Events {
    /// Takes what has come, and gives back the data of the events that are whole.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut start = 0;
        while let Some(end) = self.buffer[self.looked..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = self.looked + end;
            let line = String::from_utf8_lossy(&self.buffer[start..end]);
            let line = line.strip_prefix('\u{feff}').filter(|_| !self.begun).unwrap_or(&line);
            self.begun = true;
            let after_return = std::mem::replace(&mut self.returned, self.buffer[end] == b'\r');
            if line.is_empty() && after_return && self.buffer[end] == b'\n' {
                // One end of a line, in two bytes.
            } else if line.is_empty() {
                if !self.data.is_empty() {
                    events.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
            start = end + 1;
            self.looked = start;
        }
        self.buffer.drain(..start);
        self.looked = self.buffer.len();
        if self.buffer.len() + self.data.len() > MAX_EVENT { Err(TooLong) } else { Ok(events) }
    }

    /// An event that was not closed before the stream ended: some servers forget the last empty line.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let rest = self.push(b"\n\n").ok()?;
        rest.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        "\u{feff}data: {\"a\":\"é\"}\n\n: a comment\n\nevent: x\r\ndata:b\r\ndata: c\r\n\r\ndata: d\r\rdata: [DONE]\n\n".as_bytes();

    #[test]
    fn events_are_the_same_wherever_they_are_cut() {
        let expected = ["{\"a\":\"é\"}", "b\nc", "d", "[DONE]"];
        for cut in 0..=STREAM.len() {
            let mut events = Events::default();
            let mut found = events.push(&STREAM[..cut]).unwrap();
            found.extend(events.push(&STREAM[cut..]).unwrap());
            assert_eq!(found, expected, "cut at {cut}");
        }
        let mut events = Events::default();
        let found: Vec<_> = STREAM.iter().flat_map(|byte| events.push(&[*byte]).unwrap()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_last_event_needs_no_empty_line_and_none_is_endless() {
        let mut events = Events::default();
        assert!(events.push(b"data: x").unwrap().is_empty());
        assert_eq!(events.rest(), Some("x".into()));
        assert_eq!(Events::default().push(&vec![b'x'; MAX_EVENT + 1]), Err(TooLong));
    }

    fn all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut events = Events::default();
        let mut found: Vec<_> = pieces.into_iter().flat_map(|piece| events.push(piece).unwrap()).collect();
        found.extend(events.rest());
        found
    }

    const WORDS: &[&str] =
        &["data:", "data: ", "event:", "id:", ":", "\n", "\r", "\r\n", "\n\n", "\r\r", "{}", "[DONE]"];

    proptest::proptest! {
        #[test]
        fn no_cut_changes_what_was_said((stream, pieces) in sa_hostile::pieces(sa_hostile::text(WORDS))) {
            proptest::prop_assert_eq!(all([stream.as_bytes()]), all(pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn no_bytes_are_cut_into_something_else((stream, pieces) in sa_hostile::pieces(sa_hostile::noise())) {
            proptest::prop_assert_eq!(all([&stream[..]]), all(pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn what_is_written_as_events_is_read(
            texts in proptest::collection::vec("[^\r\n]{1,20}", 0..6), end in proptest::sample::select(&["\n", "\r", "\r\n"][..]),
        ) {
            let events: Vec<_> = texts.iter().map(|text| format!("id: 1{end}data: {text}{end}{end}")).collect();
            let stream = events.concat();
            proptest::prop_assert_eq!(all([stream.as_bytes()]), texts);
        }
    }
}
