//! Assembles lines from the pieces in which they arrive, and classifies each line.

use std::collections::BTreeMap;

use rmcp::model::RequestId;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::outline::Outline;
use crate::{MAX_MESSAGE, bearable};

/// The maximum length of a line that is skipped. A longer line counts as endless, and nothing after
/// it is read.
const MAX_SKIPPED: usize = 4 * MAX_MESSAGE;
/// The buffer capacity that is kept from one line to the next.
const KEPT: usize = 64 * 1024;

/// The kind of a line.
pub(crate) enum Line<T> {
    Message(Box<T>),
    /// An unreadable answer to this request, and an answer that is too long.
    Answer(RequestId),
    LongAnswer(RequestId),
    /// An unreadable request, or a message that could be a request, and one that is too long.
    Request(Option<RequestId>),
    LongRequest(Option<RequestId>),
    /// A notification of an unknown kind, which needs no answer.
    News,
    /// Not JSON.
    Noise,
    Endless,
}

#[derive(Default)]
pub(crate) struct Heard {
    line: Vec<u8>,
    /// Whether the line is complete.
    is_whole: bool,
    /// A line that is too long. Only its outline is kept.
    skipped: Option<Skipped>,
}

#[derive(Default)]
pub(crate) struct Skipped {
    outline: Outline,
    length: usize,
    told: bool,
}

/// The fields of a message that are needed to classify it.
pub(crate) struct Rough {
    pub(crate) id: Option<RequestId>,
    /// Whether it has a method.
    pub(crate) method: bool,
}

impl Rough {
    /// Reads the fields. If a field occurs twice, the last one counts, as for most JSON readers.
    ///
    /// This way the caller that waits for the answer gets an error instead of a timeout.
    pub(crate) fn read(message: &[u8]) -> Result<Self, serde_json::Error> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(message)?;
        let id = fields.get("id").map(|id| serde_json::from_str(id.get())).transpose()?;
        Ok(Self { id: id.flatten(), method: fields.contains_key("method") })
    }
}

impl Heard {
    /// Takes a piece, which may end a line.
    ///
    /// A line within the size limit is classified later, by [`Self::read`].
    pub(crate) fn hear<T: DeserializeOwned>(
        &mut self,
        piece: &[u8],
        is_end: bool,
    ) -> Option<Line<T>> {
        if self.skipped.is_none() && self.line.len() + piece.len() > MAX_MESSAGE {
            self.skipped.get_or_insert_default().pass(&std::mem::take(&mut self.line));
        }
        let Some(skipped) = &mut self.skipped else {
            self.line.extend_from_slice(piece);
            self.is_whole = is_end;
            return None;
        };
        skipped.pass(piece);
        let line = skipped.line(is_end);
        if is_end {
            self.skipped = None;
        } else if skipped.length > MAX_SKIPPED {
            return Some(Line::Endless);
        }
        line
    }

    /// Marks the line as complete at the end of the stream.
    pub(crate) fn end(&mut self) {
        self.is_whole = !self.line.is_empty();
    }

    /// Returns the length of the line if it is complete.
    pub(crate) fn whole(&self) -> Option<usize> {
        self.is_whole.then_some(self.line.len())
    }

    /// Reads and classifies the complete line.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Option<Line<T>> {
        let line = self.line.trim_ascii();
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let heard = if line.is_empty() { None } else { read(line) };
        self.is_whole = false;
        self.line.clear();
        self.line.shrink_to(KEPT);
        heard
    }
}

fn read<T: DeserializeOwned>(line: &[u8]) -> Option<Line<T>> {
    let Some(line) = bearable(line) else {
        let mut skipped = Skipped::default();
        skipped.pass(line);
        return skipped.line(true);
    };
    if let Ok(message) = serde_json::from_slice(&line) {
        return Some(Line::Message(Box::new(message)));
    }
    Some(match Rough::read(&line) {
        Ok(Rough { id: Some(id), method: false }) => Line::Answer(id),
        Ok(Rough { id: None, method: true }) => Line::News,
        Ok(Rough { id, .. }) => Line::Request(id),
        // A batch of messages, for example, which MCP does not support.
        Err(error) if error.is_data() => Line::Request(None),
        Err(_) => Line::Noise,
    })
}

impl Skipped {
    pub(crate) fn pass(&mut self, piece: &[u8]) {
        self.length += piece.len();
        if !self.told {
            self.outline.pass(piece);
        }
    }

    /// Classifies the line, once, as soon as its outline is sufficient.
    pub(crate) fn line<T>(&mut self, is_end: bool) -> Option<Line<T>> {
        if self.told {
            return None;
        }
        let line = match Rough::read(&self.outline.so_far()) {
            Ok(Rough { id: Some(id), method: true }) => Line::LongRequest(Some(id)),
            // The method may follow later.
            Ok(Rough { id: Some(id), method: false }) if is_end || self.outline.has("result") => {
                Line::LongAnswer(id)
            }
            _ if is_end => Line::LongRequest(None),
            _ => return None,
        };
        self.told = true;
        Some(line)
    }
}
