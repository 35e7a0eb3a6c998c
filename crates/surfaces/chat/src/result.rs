//! Converts a call's outcome into a text and images for a model.

use base64::Engine as _;
use sa_core::outcome::Block;
use sa_core::{Outcome, Output, Passthrough, RawJson};
use sa_http::MCP;
use serde_json::Value;

/// The maximum size of an image; servers accept no larger ones.
const MAX_IMAGE: usize = 20 << 20;
/// The image types that models support.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RenderedResult {
    pub(crate) text: String,
    pub(crate) images: Vec<Image>,
    pub(crate) is_error: bool,
    /// The reason of the failure, for programs; see `CallError::reason`.
    pub(crate) reason: Option<&'static str>,
    /// The result in MCP form, if the provider returned it so.
    pub(crate) mcp: Option<RawJson>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) mime_type: String,
    /// Base64.
    pub(crate) data: String,
}

impl RenderedResult {
    pub(crate) fn of(outcome: &Outcome, max_bytes: usize) -> Self {
        let mut rendered = match outcome {
            Ok(output) => Self::output(output),
            Err(error) => Self {
                mcp: mcp(error.passthrough()),
                reason: error.reason(),
                ..Self::error(&error.for_models())
            },
        };
        cut(&mut rendered.text, max_bytes);
        rendered
    }

    /// Returns the size in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.text.len() + self.images.iter().map(|image| image.data.len()).sum::<usize>()
    }

    /// Creates an error with a message that the model can act on.
    pub(crate) fn error(message: &str) -> Self {
        Self { text: format!("Error: {message}"), is_error: true, ..Self::default() }
    }

    fn output(output: &Output) -> Self {
        let mut rendered = Self { mcp: mcp(output.passthrough.as_ref()), ..Self::default() };
        let mut texts: Vec<String> = Vec::new();
        if output.blocks.is_empty() {
            texts.push(text(&output.content));
        }
        for block in &output.blocks {
            match block {
                Block::Text(text) => texts.push(text.clone()),
                Block::Image { data, mime_type } => {
                    texts.extend(rendered.image(mime_type, || data.clone(), data.len()));
                }
                Block::Other(json) => texts.push(other(json)),
            }
        }
        for attachment in &output.attachments {
            let encode = || base64::prelude::BASE64_STANDARD.encode(&attachment.data);
            let size = attachment.data.len();
            if attachment.mime_type.starts_with("image/") {
                texts.extend(rendered.image(&attachment.mime_type, encode, size));
            } else {
                let name = attachment.name.as_deref().unwrap_or("a file");
                texts.push(format!(
                    "[{name}, {}, {size} bytes, is not shown]",
                    attachment.mime_type
                ));
            }
        }
        texts.retain(|text| !text.is_empty());
        rendered.text = texts.join("\n");
        if rendered.text.is_empty() && rendered.images.is_empty() {
            rendered.text = "(no output)".into();
        }
        rendered
    }

    /// Adds an image, or returns a note if it cannot be shown.
    fn image(
        &mut self,
        mime_type: &str,
        data: impl FnOnce() -> String,
        size: usize,
    ) -> Option<String> {
        if !IMAGES.contains(&mime_type) || size > MAX_IMAGE {
            return Some(format!("[an image, {mime_type}, {size} bytes, is not shown]"));
        }
        self.images.push(Image { mime_type: mime_type.to_owned(), data: data() });
        None
    }

    /// Replaces images with notes, for a model that does not support images.
    pub(crate) fn without_images(&mut self) {
        for image in self.images.drain(..) {
            self.text.push_str(&format!(
                "\n[an image, {}, is not shown: this model does not support images]",
                image.mime_type
            ));
        }
    }
}

fn mcp(passthrough: Option<&Passthrough>) -> Option<RawJson> {
    passthrough?.in_format(MCP).cloned()
}

/// Returns a text result as text, and any other result as JSON.
fn text(content: &RawJson) -> String {
    serde_json::from_str::<String>(content.as_str()).unwrap_or_else(|_| content.as_str().to_owned())
}

fn other(json: &RawJson) -> String {
    let block = json.to_value().unwrap_or_default();
    match (&block["type"], &block["resource"]["text"]) {
        (_, Value::String(text)) => text.clone(),
        (Value::String(kind), _) if kind == "audio" => "[audio is not shown]".into(),
        (Value::String(kind), _) if kind == "resource" => {
            format!("[{} is not shown]", block["resource"]["uri"].as_str().unwrap_or("a file"))
        }
        _ => json.as_str().to_owned(),
    }
}

fn cut(text: &mut String, max_bytes: usize) {
    let whole = text.len();
    if whole > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!("\n… [cut: {max_bytes} of {whole} bytes are shown]"));
    }
}

#[cfg(test)]
mod tests {
    use sa_core::outcome::Attachment;
    use sa_core::{CallError, CallErrorKind};
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(result: Value, text: &str, images: usize) {
        let output = sa_http::blocks::output(RawJson::of(&result), Vec::new());
        let rendered = RenderedResult::of(&Ok(output), 1_000);
        assert_eq!((rendered.text.as_str(), rendered.images.len()), (text, images), "{result}");
    }

    #[test]
    fn results_are_texts_and_images() {
        check(json!("plain"), "plain", 0);
        check(json!({ "a": 1 }), "{\"a\":1}", 0);
        check(json!(""), "(no output)", 0);
        let image = |mime: &str| json!({ "type": "image", "data": "AA==", "mimeType": mime });
        check(json!({ "content": [{ "type": "text", "text": "x" }, image("image/png")] }), "x", 1);
        check(
            json!({ "content": [image("image/tiff")] }),
            "[an image, image/tiff, 4 bytes, is not shown]",
            0,
        );
    }

    #[test]
    fn attachments_are_rendered_or_named() {
        let attach =
            |mime: &str| Attachment { mime_type: mime.into(), name: None, data: vec![0].into() };
        let attachments = vec![attach("image/png"), attach("application/zip")];
        let output = Output { attachments, ..Output::json(RawJson::parse("1").unwrap()) };
        let mut rendered = RenderedResult::of(&Ok(output), 1_000);
        assert_eq!(rendered.text, "1\n[a file, application/zip, 1 bytes, is not shown]");
        assert_eq!(rendered.images, [Image { mime_type: "image/png".into(), data: "AA==".into() }]);
        rendered.without_images();
        assert!(rendered.images.is_empty() && rendered.text.contains("does not support images"));
    }

    #[test]
    fn errors_and_long_results() {
        let error =
            CallError::new(CallErrorKind::InvalidArgs, "missing \"q\"").hint("see the schema");
        let rendered = RenderedResult::of(&Err(error), 1_000);
        assert_eq!(rendered.text, "Error: invalid_args: missing \"q\"; see the schema");
        let long = Output::json(RawJson::of(&json!("ä".repeat(100))));
        assert_eq!(RenderedResult::of(&Ok(long), 5).text, "ää\n… [cut: 5 of 200 bytes are shown]");
    }
}
