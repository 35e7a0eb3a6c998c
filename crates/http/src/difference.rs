//! Differences between two JSON documents.

use sa_text::json::difference::Change;
use serde::Serialize;

/// One position in which two JSON documents differ.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DifferenceDoc {
    /// A JSON pointer.
    path: String,
    /// The old value as JSON; absent if the value was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    /// The new value as JSON; absent if the value was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

impl From<Change> for DifferenceDoc {
    fn from(Change { path, was, now }: Change) -> Self {
        Self { path, was, now }
    }
}
