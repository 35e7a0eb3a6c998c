//! Encoders for the frames of a participant.

use super::Publish;
use crate::push_string;

pub fn encode_publish(publish: &Publish<'_>) -> String {
    let mut out = String::with_capacity(publish.payload.len() + 160);
    out.push_str("{\"action\":\"publish\",\"type\":");
    push_string(&mut out, &publish.kind);
    out.push_str(",\"payload\":");
    out.push_str(publish.payload);
    out.push_str(if publish.persist { ",\"persist\":true" } else { ",\"persist\":false" });
    if let Some(id) = &publish.client_message_id {
        out.push_str(",\"clientMessageId\":");
        push_string(&mut out, id);
    }
    if !publish.attachments.is_empty() {
        out.push_str(",\"attachmentMeta\":");
        out.push_str(&serde_json::to_string(&publish.attachments).unwrap_or_else(|_| "[]".into()));
    }
    end(out, publish.reference)
}

/// Encodes a frame that replaces the participant's metadata in the roster. `metadata` is a JSON
/// object.
pub fn encode_update_metadata(metadata: &str, reference: Option<i64>) -> String {
    end(format!("{{\"action\":\"update-metadata\",\"payload\":{metadata}"), reference)
}

pub fn encode_get_messages_before(
    before: Option<u64>,
    limit: usize,
    reference: Option<i64>,
) -> String {
    let before = before.map(|before| format!(",\"before\":{before}")).unwrap_or_default();
    end(format!("{{\"action\":\"get-messages-before\"{before},\"limit\":{limit}"), reference)
}

pub fn encode_close() -> String {
    "{\"action\":\"close\"}".into()
}

fn end(mut out: String, reference: Option<i64>) -> String {
    if let Some(reference) = reference {
        out.push_str(&format!(",\"ref\":{reference}"));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{AttachmentMeta, ClientFrame};

    #[test]
    fn what_a_participant_writes_is_what_a_server_reads() {
        let publish = Publish {
            kind: "mess\"age".into(),
            payload: r#"{"id":"x"}"#,
            persist: false,
            reference: Some(4),
            client_message_id: Some("a\n".into()),
            attachments: vec![AttachmentMeta {
                id: None,
                mime_type: "a/b".into(),
                name: None,
                size: 3,
            }],
        };
        let text = encode_publish(&publish);
        assert_eq!(ClientFrame::decode(&text), Ok(ClientFrame::Publish(publish)));
        let text = encode_update_metadata("{}", Some(1));
        assert_eq!(
            ClientFrame::decode(&text),
            Ok(ClientFrame::UpdateMetadata { metadata: "{}", reference: Some(1) })
        );
        let text = encode_get_messages_before(Some(7), 10, None);
        let expected = ClientFrame::GetMessagesBefore {
            before: Some(7),
            limit: Some(10),
            reference: None,
            answer: "history",
        };
        assert_eq!(ClientFrame::decode(&text), Ok(expected));
        let text = r#"{"action":"get-messages-before","beforeId":7,"ref":1}"#;
        let expected = ClientFrame::GetMessagesBefore {
            before: Some(7),
            limit: None,
            reference: Some(1),
            answer: "messages-before",
        };
        assert_eq!(ClientFrame::decode(text), Ok(expected));
        assert_eq!(
            ClientFrame::decode(&encode_close()),
            Ok(ClientFrame::Close { reference: None })
        );
    }
}
