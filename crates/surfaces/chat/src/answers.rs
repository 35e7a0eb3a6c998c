//! The part of the budget for answers that one request takes: the answer that is being received,
//! and what is kept of the answers before it.

use sa_limits::budget::Share;
use sa_limits::received::Received;
use serde_json::Value;

use crate::error::ChatError;

/// The estimated overhead of an item of a list, in bytes.
const BYTES_PER_VALUE: usize = 32;

#[derive(Debug)]
pub(crate) struct Answers {
    received: Received,
    /// The size of what is kept.
    kept: usize,
}

impl Answers {
    pub(crate) fn of(share: Share) -> Self {
        Self { received: Received::counted(share), kept: 0 }
    }

    /// Counts this number of bytes of the current answer.
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<(), ChatError> {
        self.received.grow(self.kept.saturating_add(bytes)).map_err(ChatError::from)
    }

    /// Ends the current answer, or a piece of it, of which this number of bytes is kept.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.keep_only(self.kept.saturating_add(bytes));
    }

    /// Does the same, and nothing else is kept any more.
    pub(crate) fn keep_only(&mut self, bytes: usize) {
        self.kept = bytes;
        self.received.shrink(bytes);
    }
}

/// Returns the approximate size of a piece of a message that is joined with the pieces before it.
/// The names of its fields are not repeated.
pub(crate) fn weight(piece: &Value) -> usize {
    match piece {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| BYTES_PER_VALUE + weight(item)).sum(),
        Value::Object(fields) => fields.values().map(weight).sum(),
        _ => 0,
    }
}
