//! A parser for server-sent events as defined by the
//! [specification](https://html.spec.whatwg.org/multipage/server-sent-events.html).
//!
//! [`Reader`] accepts bytes in pieces of any size and reads each byte once. It buffers at most one
//! incomplete event of bounded length. [`Events`] does the same for the body of a response.

mod response;

use std::collections::VecDeque;
use std::sync::Arc;

pub use response::{Broken, Events};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The name of the event; `message` if the stream sets none.
    pub name: String,
    pub data: String,
    /// The last id that the stream has set, with this event or an earlier one. A client that
    /// reconnects continues after this id.
    pub id: Option<Arc<str>>,
}

/// The error for an event that exceeds the reader's limit. The reader then ignores the rest of the
/// stream, because it may belong to that event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {most} bytes")]
pub struct TooLong {
    pub most: usize,
}

/// Parses bytes into events.
#[derive(Debug)]
pub struct Reader {
    most: usize,
    /// The incomplete line.
    line: Vec<u8>,
    name: String,
    /// The event's lines of data, with a line feed after each.
    data: String,
    id: Option<Arc<str>>,
    /// Whether the last line ended in a carriage return, so that a line feed may still belong to
    /// it.
    after_return: bool,
    /// Whether a line has been read: only the first may begin with a byte order mark.
    begun: bool,
    too_long: bool,
    ready: VecDeque<Event>,
}

impl Reader {
    /// Creates a reader. `most` is the maximum length of an event in bytes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            name: String::new(),
            data: String::new(),
            id: None,
            after_return: false,
            begun: false,
            too_long: false,
            ready: VecDeque::new(),
        }
    }

    /// Adds received bytes. [`Reader::next_event`] returns the events that they complete.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !self.too_long && !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.name.len() + self.data.len() + self.line.len() + piece.len() > self.most {
                self.too_long = true;
                (self.line, self.name, self.data) = (Vec::new(), String::new(), String::new());
                return;
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { return };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.end_line(&line);
            // Reuse the line's buffer.
            self.line = line;
            self.line.clear();
        }
    }

    /// Returns the next complete event, or `None` until more bytes are pushed.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        match self.ready.pop_front() {
            Some(event) => Ok(Some(event)),
            None if self.too_long => Err(TooLong { most: self.most }),
            None => Ok(None),
        }
    }

    /// Completes an event that was not closed before the stream ended. The specification discards
    /// it, because it may be truncated. Call this for servers that omit the last empty line.
    pub fn end(&mut self) {
        self.push(b"\n\n");
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.strip_prefix('\u{feff}').filter(|_| !self.begun).unwrap_or(&line);
        self.begun = true;
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => self.id = Some(value.into()),
            // Ignored: comments (no field name), the reconnection time (the caller decides), and
            // unknown fields.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let (mut name, mut data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        // An event without a line of data is discarded, even if it has a name.
        if data.pop().is_none() {
            return;
        }
        if name.is_empty() {
            "message".clone_into(&mut name);
        }
        self.ready.push_back(Event { name, data, id: self.id.clone() });
    }
}
