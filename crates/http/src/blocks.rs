//! Content blocks and attachments in the JSON format of the APIs.

use std::borrow::Cow;

use sa_core::RawJson;
use sa_core::outcome::{Attachment, Block};
use serde::Serialize;
use serde_json::value::RawValue;

/// A content block in the JSON format of the APIs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WireBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        /// Base64.
        data: &'a str,
        #[serde(rename = "mimeType")]
        mime_type: &'a str,
    },
    /// A block of any other kind, as the provider wrote it.
    #[serde(untagged)]
    #[schema(value_type = Object)]
    Other(&'a RawValue),
}

impl<'a> From<&'a Block> for WireBlock<'a> {
    fn from(block: &'a Block) -> Self {
        match block {
            Block::Text(text) => Self::Text { text },
            Block::Image { data, mime_type } => Self::Image { data, mime_type },
            Block::Other(json) => {
                serde_json::from_str(json.as_str()).map_or(Self::Text { text: "" }, Self::Other)
            }
        }
    }
}

pub fn wire_attachment(attachment: &Attachment) -> sa_protocol::Attachment<'static> {
    sa_protocol::Attachment::from_bytes(
        attachment.mime_type.clone(),
        attachment.name.as_deref(),
        &attachment.data,
    )
}

pub fn wire_attachments(attachments: &[Attachment]) -> Vec<sa_protocol::Attachment<'static>> {
    attachments.iter().map(wire_attachment).collect()
}

/// Returns JSON text for use inside other JSON text.
pub fn raw(json: &RawJson) -> Option<Cow<'_, RawValue>> {
    serde_json::from_str::<&RawValue>(json.as_str()).ok().map(Cow::Borrowed)
}
