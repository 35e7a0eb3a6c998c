//! Encoders for the frames of a participant.

use sa_text::json::ObjectWriter;

use super::Publish;

pub fn encode_publish(publish: &Publish<'_>) -> String {
    ObjectWriter::with_capacity(publish.payload.len() + 160)
        .text("action", "publish")
        .text("type", &publish.kind)
        .raw_text("payload", publish.payload)
        .plain("persist", publish.persist)
        .opt_text("clientMessageId", publish.client_message_id.as_deref())
        .list("attachmentMeta", &publish.attachments)
        .opt_plain("ref", publish.reference)
        .end()
}

/// Encodes a frame that replaces the participant's metadata in the roster. `metadata` is a JSON
/// object.
pub fn encode_update_metadata(metadata: &str, reference: Option<i64>) -> String {
    ObjectWriter::with_capacity(metadata.len() + 60)
        .text("action", "update-metadata")
        .raw_text("payload", metadata)
        .opt_plain("ref", reference)
        .end()
}

pub fn encode_get_messages_before(
    before: Option<u64>,
    limit: usize,
    reference: Option<i64>,
) -> String {
    ObjectWriter::with_capacity(100)
        .text("action", "get-messages-before")
        .opt_plain("before", before)
        .plain("limit", limit)
        .opt_plain("ref", reference)
        .end()
}

pub fn encode_close() -> String {
    ObjectWriter::with_capacity(20).text("action", "close").end()
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
