//! Files that are sent with a result or a chunk.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::json;

/// A file in a frame.
///
/// The bytes are base64 text. When the file was read from a frame, the text borrows from that
/// frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment<'a> {
    /// The MIME type of the bytes, such as `image/png`.
    #[serde(borrow, deserialize_with = "json::cow")]
    pub mime_type: Cow<'a, str>,
    /// The file's name, if it has one.
    #[serde(
        borrow,
        default,
        deserialize_with = "json::opt_cow",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<Cow<'a, str>>,
    /// The bytes in standard base64 with padding.
    #[serde(borrow, deserialize_with = "json::cow")]
    pub data: Cow<'a, str>,
}

impl Attachment<'static> {
    /// Creates an attachment from these bytes.
    pub fn from_bytes(mime_type: impl Into<String>, name: Option<&str>, bytes: &[u8]) -> Self {
        Self {
            mime_type: Cow::Owned(mime_type.into()),
            name: name.map(|name| Cow::Owned(name.to_owned())),
            data: Cow::Owned(BASE64_STANDARD.encode(bytes)),
        }
    }
}

impl Attachment<'_> {
    /// Decodes and returns the bytes.
    pub fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        BASE64_STANDARD.decode(self.data.as_bytes())
    }

    /// Converts the attachment into one that owns its text and may outlive the frame.
    pub fn into_owned(self) -> Attachment<'static> {
        Attachment {
            mime_type: Cow::Owned(self.mime_type.into_owned()),
            name: self.name.map(|name| Cow::Owned(name.into_owned())),
            data: Cow::Owned(self.data.into_owned()),
        }
    }

    /// Returns an upper bound of the attachment's size in a frame, in bytes.
    pub fn encoded_len(&self) -> usize {
        let escaped = |text: &str| text.chars().map(sa_text::json::escaped_len).sum::<usize>();
        // Base64 needs no escapes.
        escaped(&self.mime_type) + self.name.as_deref().map_or(0, escaped) + self.data.len() + 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_counts_what_is_escaped() {
        for name in [None, Some(""), Some("a\"b"), Some(&*"\u{1}é\\".repeat(99))] {
            let attachment = Attachment::from_bytes("text/\n", name, b"x");
            let (real, told) =
                (serde_json::to_string(&attachment).unwrap().len(), attachment.encoded_len());
            // The bound includes the comma before the next attachment.
            assert!(real < told && told < real + 30, "{real}, {told}");
        }
    }

    #[test]
    fn bytes_survive() {
        let attachment = Attachment::from_bytes("image/png", Some("a.png"), &[0, 159, 146, 150]);
        let text = serde_json::to_string(&attachment).unwrap();
        assert!(text.len() <= attachment.encoded_len());
        let read: Attachment<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.bytes().unwrap(), [0, 159, 146, 150]);
        assert!(matches!(read.data, Cow::Borrowed(_)));
        assert_eq!(read, attachment);
    }
}
