//! Server-sent events, one by one.

use std::collections::VecDeque;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::Value;

/// A longer event has no end, and ends the stream.
const MAX_EVENT: usize = 64 << 20;

#[derive(Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

pub(crate) struct Events {
    body: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    reader: Reader,
    ready: VecDeque<Event>,
}

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        let body = response.bytes_stream().map(|part| part.map(|part| part.to_vec())).boxed();
        Self { body, reader: Reader::default(), ready: VecDeque::new() }
    }

    /// `None` at the end of the stream, however it came.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let part = self.body.next().await?.ok()?;
            self.ready.extend(self.reader.push(&part)?);
        }
    }
}

/// Puts events together from the pieces in which they come, cut anywhere.
#[derive(Default)]
struct Reader {
    line: Vec<u8>,
    id: Option<String>,
    data: String,
    /// Whether the last line ended in a carriage return, to which a line feed may still belong.
    returned: bool,
}

impl Reader {
    /// The events that are whole with this piece; `None` once one is too long.
    fn push(&mut self, piece: &[u8]) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        for part in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part {
                [text @ .., end @ (b'\n' | b'\r')] => (text, Some(*end)),
                text => (text, None),
            };
            let after_return = std::mem::replace(&mut self.returned, end == Some(b'\r'));
            self.line.extend_from_slice(text);
            let is_second_half = after_return && text.is_empty() && end == Some(b'\n');
            if end.is_some() && !is_second_half {
                events.extend(self.end_line());
            }
            if self.line.len() + self.data.len() > MAX_EVENT {
                return None;
            }
        }
        Some(events)
    }

    /// The event that ends with an empty line, but for comments, and for what is not JSON.
    fn end_line(&mut self) -> Option<Event> {
        if self.line.is_empty() {
            let (id, data) = (self.id.take(), std::mem::take(&mut self.data));
            return Some(Event { id, data: serde_json::from_str(&data).ok()? });
        }
        let line = String::from_utf8_lossy(&self.line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" => self.id = Some(value.to_owned()),
            _ => {}
        }
        self.line.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut reader = Reader::default();
        pieces.into_iter().flat_map(|piece| reader.push(piece).unwrap()).collect()
    }

    #[test]
    fn events_are_read_and_comments_are_not() {
        let stream =
            b": still here\n\nid: 7\nevent: x\ndata: {\"a\":\ndata: 1}\n\ndata: nonsense\n\ndata:2\r\n\r\ndata: 3";
        let event = |id: Option<&str>, data| Event { id: id.map(str::to_owned), data };
        assert_eq!(all([&stream[..]]), [event(Some("7"), json!({ "a": 1 })), event(None, json!(2))]);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; MAX_EVENT / 2];
        assert!(reader.push(&piece).is_some() && reader.push(&piece).is_some());
        assert!(reader.push(b"x").is_none());
    }

    const WORDS: &[&str] =
        &["data:", "data: ", "data", "event:", "id:", "id: 7", ":", "\n", "\r", "\r\n", "\n\n", "{}", "[1]"];

    proptest! {
        #[test]
        fn no_cut_changes_what_was_said((stream, pieces) in sa_hostile::pieces(sa_hostile::text(WORDS))) {
            prop_assert_eq!(all([stream.as_bytes()]), all(pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn no_bytes_are_cut_into_something_else((stream, pieces) in sa_hostile::pieces(sa_hostile::noise())) {
            prop_assert_eq!(all([&stream[..]]), all(pieces.iter().map(Vec::as_slice)));
        }

        #[test]
        fn what_is_written_as_events_is_read(
            values in proptest::collection::vec(sa_hostile::json(&["type", "caller_tool_request"]), 0..4),
            end in prop::sample::select(&["\n", "\r", "\r\n"][..]),
        ) {
            let events: Vec<_> = values.iter().map(|value| format!("id: 7{end}data: {value}{end}{end}")).collect();
            let stream = events.concat();
            let read = all([stream.as_bytes()]);
            prop_assert!(read.iter().all(|event| event.id.as_deref() == Some("7")));
            prop_assert_eq!(read.into_iter().map(|event| event.data).collect::<Vec<_>>(), values);
        }
    }
}
