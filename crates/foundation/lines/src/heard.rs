//! Puts lines together from the pieces in which they come, and finds out what each of them is.

use std::collections::BTreeMap;

use rmcp::model::RequestId;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::outline::Outline;
use crate::{MAX_MESSAGE, bearable};

/// A line that is longer than this has no end, and nothing that comes after it is ever heard.
const MAX_SKIPPED: usize = 4 * MAX_MESSAGE;
/// How much room is kept from one line to the next.
const KEPT: usize = 64 * 1024;

/// What a line is.
pub(crate) enum Line<T> {
    Message(Box<T>),
    /// An answer to this request that cannot be read, and one that is too long.
    Answer(RequestId),
    LongAnswer(RequestId),
    /// The same of a request, or of something that could be one.
    Request(Option<RequestId>),
    LongRequest(Option<RequestId>),
    /// News that nobody here knows, which want no answer.
    News,
    /// No JSON.
    Noise,
    Endless,
}

#[derive(Default)]
pub(crate) struct Heard {
    line: Vec<u8>,
    /// Whether all of the line is there.
    is_whole: bool,
    /// A line that is too long, of which no more is kept than what it is about.
    skipped: Option<Skipped>,
}

#[derive(Default)]
pub(crate) struct Skipped {
    outline: Outline,
    length: usize,
    told: bool,
}

/// As much of a message as it takes to know what it is.
pub(crate) struct Rough {
    pub(crate) id: Option<RequestId>,
    /// Whether it has one.
    pub(crate) method: bool,
}

impl Rough {
    /// Of what is there twice the last counts, as for most readers: whoever waits for this answer need not wait on.
    pub(crate) fn read(message: &[u8]) -> Result<Self, serde_json::Error> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(message)?;
        let id = fields.get("id").map(|id| serde_json::from_str(id.get())).transpose()?;
        Ok(Self { id: id.flatten(), method: fields.contains_key("method") })
    }
}

impl Heard {
    /// Takes a piece, with which a line may end. What is in one that is not too long is found out by reading it.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, piece: &[u8], is_end: bool) -> Option<Line<T>> {
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

    /// There is no more to come of the line.
    pub(crate) fn end(&mut self) {
        self.is_whole = !self.line.is_empty();
    }

    /// How long the line is, once all of it is there.
    pub(crate) fn whole(&self) -> Option<usize> {
        self.is_whole.then_some(self.line.len())
    }

    /// What the line is that is there.
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
        // Several at once, say, which MCP has not.
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

    /// What the line is, once, as soon as it has said so.
    pub(crate) fn line<T>(&mut self, is_end: bool) -> Option<Line<T>> {
        if self.told {
            return None;
        }
        let line = match Rough::read(&self.outline.so_far()) {
            Ok(Rough { id: Some(id), method: true }) => Line::LongRequest(Some(id)),
            // Its method may be yet to come.
            Ok(Rough { id: Some(id), method: false }) if is_end || self.outline.has("result") => Line::LongAnswer(id),
            _ if is_end => Line::LongRequest(None),
            _ => return None,
        };
        self.told = true;
        Some(line)
    }
}
