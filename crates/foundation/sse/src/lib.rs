//! Reading server-sent events as the [specification](https://html.spec.whatwg.org/multipage/server-sent-events.html) says.
//!
//! [`Reader`] takes bytes as they come, cut anywhere, looks at each of them once, and keeps no more than one event of bounded
//! length. [`Events`] is the same for the body of a response.

mod response;

use std::collections::VecDeque;
use std::sync::Arc;

pub use response::{Broken, Events};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `message`, where the stream does not say.
    pub name: String,
    pub data: String,
    /// The id that the stream last gave, with this event or one before it: whoever comes back goes on after it.
    pub id: Option<Arc<str>>,
}

/// An event that is longer than its reader takes. No more is read of the stream: what follows may belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {most} bytes")]
pub struct TooLong {
    pub most: usize,
}

/// Makes events of bytes.
#[derive(Debug)]
pub struct Reader {
    most: usize,
    /// The line that has begun.
    line: Vec<u8>,
    name: String,
    /// The event's lines of data, with a line feed after each.
    data: String,
    id: Option<Arc<str>>,
    /// Whether the last line ended in a carriage return, to which a line feed may still belong.
    after_return: bool,
    /// Whether a line has been read: only the first may begin with a byte order mark.
    begun: bool,
    too_long: bool,
    ready: VecDeque<Event>,
}

impl Reader {
    /// `most` is how long an event may be, in bytes.
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

    /// Takes what has come. [`Reader::next_event`] gives the events that it completes.
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
            // Its room is used again.
            self.line = line;
            self.line.clear();
        }
    }

    /// The next event that is complete; `None` until more has come.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        match self.ready.pop_front() {
            Some(event) => Ok(Some(event)),
            None if self.too_long => Err(TooLong { most: self.most }),
            None => Ok(None),
        }
    }

    /// Completes an event that was not closed before the stream ended. The specification has it thrown away, because it may
    /// have been cut off; this is for streams of servers that forget the last empty line.
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
            // A comment, which has no name; when to reconnect, which is for its reader to decide; and whatever else there will be.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let (mut name, mut data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        // Without a line of data there is no event, though it has a name.
        if data.pop().is_none() {
            return;
        }
        if name.is_empty() {
            "message".clone_into(&mut name);
        }
        self.ready.push_back(Event { name, data, id: self.id.clone() });
    }
}
