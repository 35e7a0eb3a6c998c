//! Converts a server's answers to outcomes of the gateway, and keeps the original beside them.

use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode, ErrorData, MetaObject, ResourceContents, ServerResult,
};
use sa_core::{
    Block, CallError, CallErrorKind, DocumentError, Outcome, Output, Passthrough, RawJson,
};
use sa_http::MCP;
use serde_json::{Map, Value};

use crate::connection::Failure;

pub(crate) fn of_call(server: &str, answer: Result<ServerResult, Failure>) -> Outcome {
    match answer {
        Ok(ServerResult::CallToolResult(result)) => of_result(server, &result),
        Ok(_) => Err(CallError::new(
            CallErrorKind::Failed,
            format!("\"{server}\" returned a response that is not a result"),
        )),
        Err(failure) => Err(error(server, failure)),
    }
}

/// Returns the approximate size of an answer as text, in bytes. An exact count would cost as much
/// as the serialization itself.
pub(crate) fn weight(answer: &ServerResult) -> usize {
    let document = |contents: &ResourceContents| match contents {
        ResourceContents::TextResourceContents { text, .. } => text.len(),
        ResourceContents::BlobResourceContents { blob, .. } => blob.len(),
        _ => 0,
    };
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        ContentBlock::Resource(resource) => document(&resource.resource),
        _ => 0,
    };
    let meta = |meta: Option<&MetaObject>| meta.map_or(0, |meta| fields(&meta.0));
    match answer {
        ServerResult::CallToolResult(result) => {
            let blocks =
                result.content.iter().map(|part| BYTES_PER_VALUE + block(part)).sum::<usize>();
            blocks
                + result.structured_content.as_ref().map_or(0, values)
                + meta(result.meta.as_ref())
        }
        ServerResult::ReadResourceResult(result) => {
            result.contents.iter().map(|contents| BYTES_PER_VALUE + document(contents)).sum()
        }
        ServerResult::GetPromptResult(result) => {
            result.messages.iter().map(|message| BYTES_PER_VALUE + block(&message.content)).sum()
        }
        ServerResult::CustomResult(result) => values(&result.0),
        _ => 0,
    }
}

/// The estimated overhead of a value, in bytes.
const BYTES_PER_VALUE: usize = 8;

pub(crate) fn values(value: &Value) -> usize {
    match value {
        Value::String(text) => BYTES_PER_VALUE + text.len(),
        Value::Array(items) => BYTES_PER_VALUE + items.iter().map(values).sum::<usize>(),
        Value::Object(object) => BYTES_PER_VALUE + fields(object),
        _ => BYTES_PER_VALUE,
    }
}

fn fields(object: &Map<String, Value>) -> usize {
    object.iter().map(|(name, value)| name.len() + values(value)).sum()
}

fn of_result(server: &str, result: &CallToolResult) -> Outcome {
    let json =
        serde_json::to_string(result).and_then(|json| RawJson::parse(&json)).map_err(|error| {
            let why = format!("the upstream \"{server}\" returned an invalid response: {error}");
            CallError::new(CallErrorKind::Failed, why)
        })?;
    if result.is_error == Some(true) {
        let texts: Vec<&str> = result
            .content
            .iter()
            .filter_map(|block| Some(block.as_text()?.text.as_str()))
            .collect();
        let message = if texts.is_empty() {
            "the tool failed without an error message".into()
        } else {
            texts.join("\n")
        };
        return Err(CallError::new(CallErrorKind::Failed, message)
            .with_passthrough(Passthrough::new(MCP, json)));
    }
    let content = result.structured_content.as_ref().map_or_else(|| json.clone(), RawJson::of);
    let blocks = result.content.iter().map(block).collect();
    Ok(Output { blocks, passthrough: Some(Passthrough::new(MCP, json)), ..Output::json(content) })
}

fn block(block: &ContentBlock) -> Block {
    match block {
        ContentBlock::Text(text) => Block::Text(text.text.clone()),
        ContentBlock::Image(image) => {
            Block::Image { data: image.data.clone(), mime_type: image.mime_type.clone() }
        }
        other => Block::Other(RawJson::of(&serde_json::to_value(other).unwrap_or_default())),
    }
}

fn error(server: &str, failure: Failure) -> CallError {
    match failure {
        Failure::Unsent => CallError::undelivered(format!(
            "the connection to \"{server}\" ended before the call was sent"
        )),
        Failure::Lost => CallError::new(
            CallErrorKind::Offline,
            format!("the upstream \"{server}\" disconnected during the call"),
        )
        .hint("the call reached the server and may have had an effect; check before you retry")
        .retryable(false),
        Failure::Refused(why) => CallError::new(
            CallErrorKind::Failed,
            format!("the upstream \"{server}\" did not accept the call: {why}"),
        )
        .hint("run `switchboard upstream list` to see its state"),
        Failure::Answered(error) => {
            let json = serde_json::to_value(&error)
                .map(|error| RawJson::of(&serde_json::json!({ "error": error })));
            let failed = CallError::new(kind(&error), error.message.into_owned());
            match json {
                Ok(json) => failed.with_passthrough(Passthrough::new(MCP, json)),
                Err(_) => failed,
            }
        }
        Failure::NoBudget(refused) => CallError::answer_refused(refused),
        Failure::Unanswered(error) => error,
    }
}

fn kind(error: &ErrorData) -> CallErrorKind {
    match error.code {
        ErrorCode::INVALID_PARAMS => CallErrorKind::InvalidArgs,
        ErrorCode::METHOD_NOT_FOUND | ErrorCode::RESOURCE_NOT_FOUND => CallErrorKind::NotFound,
        _ => CallErrorKind::Failed,
    }
}

pub(crate) fn of_document(
    server: &str,
    answer: Result<ServerResult, Failure>,
) -> Result<RawJson, DocumentError> {
    let internal = |message: String| DocumentError {
        code: ErrorCode::INTERNAL_ERROR.0,
        message,
        data: None,
        undelivered: false,
    };
    match answer {
        Ok(result) => {
            let json =
                serde_json::to_string(&result).map_err(|error| internal(error.to_string()))?;
            RawJson::parse(&json)
                .map_err(|error| internal(format!("the result cannot be forwarded: {error}")))
        }
        Err(failure) => Err(document_error(server, failure)),
    }
}

pub(crate) fn document_error(server: &str, failure: Failure) -> DocumentError {
    match failure {
        Failure::Answered(error) => DocumentError {
            code: error.code.0,
            message: error.message.into_owned(),
            data: error.data.as_ref().map(RawJson::of),
            undelivered: false,
        },
        failure => {
            let error = error(server, failure);
            let undelivered = error.is_undelivered();
            let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            DocumentError {
                code: ErrorCode::INTERNAL_ERROR.0,
                message: error.message + &hint,
                data: None,
                undelivered,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(json: serde_json::Value) -> Outcome {
        of_call("s", Ok(ServerResult::CallToolResult(serde_json::from_value(json).unwrap())))
    }

    #[test]
    fn a_result_is_passed_through_without_loss() {
        let sent = json!({
            "content": [
                { "type": "text", "text": "a", "annotations": { "audience": ["user"], "priority": 0.5 } },
                { "type": "image", "data": "AA==", "mimeType": "image/png" },
                { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
                { "type": "resource_link", "uri": "file:///a", "name": "a" },
                { "type": "resource", "resource": { "uri": "file:///b", "mimeType": "text/plain", "text": "b" } },
            ],
            "structuredContent": { "n": 1 },
            "_meta": { "k": "v" },
        });
        let output = result(sent.clone()).unwrap();
        assert_eq!(output.content.to_value().unwrap(), json!({ "n": 1 }));
        assert_eq!(output.blocks.len(), 5);
        assert_eq!(output.passthrough.unwrap().in_format(MCP).unwrap().to_value().unwrap(), sent);
        let Block::Other(audio) = &output.blocks[2] else { panic!("{:?}", output.blocks[2]) };
        assert_eq!(audio.to_value().unwrap(), sent["content"][2]);
    }

    #[test]
    fn a_failed_result_is_an_error_that_keeps_its_blocks() {
        let sent =
            json!({ "content": [{ "type": "text", "text": "no such file" }], "isError": true });
        let error = result(sent.clone()).unwrap_err();
        assert_eq!((error.kind, &*error.message), (CallErrorKind::Failed, "no such file"));
        assert_eq!(error.passthrough().unwrap().in_format(MCP).unwrap().to_value().unwrap(), sent);
    }
}
