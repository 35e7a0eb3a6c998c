//! Content blocks and attachments in the JSON format of the APIs.

use std::borrow::Cow;

use sa_core::outcome::{Attachment, Block};
use sa_core::{Output, RawJson};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Creates the output for a provider's JSON result. A result of the form
/// `{"content":[{"type":"text"|"image",…},…]}` is a list of blocks. It is stored unchanged, and
/// also offered as blocks.
pub fn output(content: RawJson, attachments: Vec<Attachment>) -> Output {
    let blocks = find_blocks(&content);
    Output { blocks, attachments, ..Output::json(content) }
}

/// Returns the blocks of a result, or none if one of its items is of another kind.
fn find_blocks(content: &RawJson) -> Vec<Block> {
    #[derive(Deserialize)]
    struct Shape<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    // Nearly no result has this form, and the first bytes rule most of them out.
    let text = content.as_str();
    if !text.starts_with('{') || !text.contains("\"content\"") || !text.contains("\"type\"") {
        return Vec::new();
    }
    let Ok(shape) = serde_json::from_str::<Shape<'_>>(text) else {
        return Vec::new();
    };
    let blocks: Option<Vec<_>> = shape.content.into_iter().map(read_block).collect();
    blocks.unwrap_or_default()
}

fn read_block(item: &RawValue) -> Option<Block> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        text: Option<Cow<'a, str>>,
        #[serde(borrow)]
        data: Option<Cow<'a, str>>,
        #[serde(borrow, rename = "mimeType")]
        mime_type: Option<Cow<'a, str>>,
    }
    // Serde also accepts a list with the fields in order for a struct.
    let item: Item<'_> =
        serde_json::from_str(Some(item.get()).filter(|item| item.starts_with('{'))?).ok()?;
    match (&*item.kind, item.text, item.data, item.mime_type) {
        ("text", Some(text), _, _) => Some(Block::Text(text.into_owned())),
        ("image", _, Some(data), Some(mime_type)) => {
            Some(Block::Image { data: data.into_owned(), mime_type: mime_type.into_owned() })
        }
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_blocks(json: &str, expected: usize) {
        let output = output(RawJson::parse(json).unwrap(), Vec::new());
        assert_eq!(output.blocks.len(), expected, "{json}");
        assert_eq!(output.content.as_str(), json, "the result itself stays as it came");
    }

    #[test]
    fn blocks_are_found_only_where_every_item_is_one() {
        check_blocks(
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"AA==","mimeType":"image/png"}]}"#,
            2,
        );
        check_blocks(r#"{ "content" : [ { "text" : "a\n" , "type" : "text" } ] }"#, 1);
        check_blocks(r#"{"content":"plain","type":"text"}"#, 0);
        check_blocks(r#"{"content":[{"type":"text","text":"a"},{"type":"video"}]}"#, 0);
        check_blocks(r#"{"content":[{"type":"text"}]}"#, 0);
        check_blocks(r#"{"content":[["text","a","b","c"]],"type":1}"#, 0);
        check_blocks(r#"[{"type":"text","text":"content"}]"#, 0);
        check_blocks("null", 0);
    }

    proptest::proptest! {
        #[test]
        fn blocks_are_all_that_a_result_has_or_none(content in sa_hostile::json(&["content", "type", "text", "image", "data", "mimeType"])) {
            for content in [content.clone(), json!({ "content": content }), json!({ "content": [content] })] {
                let output = output(RawJson::of(&content), Vec::new());
                let items = content["content"].as_array().map_or(0, Vec::len);
                proptest::prop_assert!(output.blocks.is_empty() || output.blocks.len() == items);
                for (block, item) in output.blocks.iter().zip(content["content"].as_array().into_iter().flatten()) {
                    match block {
                        Block::Text(text) => proptest::prop_assert_eq!(&item["text"], text),
                        Block::Image { data, mime_type } => proptest::prop_assert!(item["data"] == **data && item["mimeType"] == **mime_type),
                        Block::Other(other) => proptest::prop_assert!(false, "{other:?}"),
                    }
                }
                proptest::prop_assert_eq!(output.content.to_value().unwrap(), content);
            }
        }
    }
}
