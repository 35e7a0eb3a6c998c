//! Errors for messages that cannot be read, in the form of the protocol.
//!
//! rmcp answers them with one plain text: that the media type is not supported, although it is. A
//! client cannot pass such an answer on to its caller.

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use bytes::Bytes;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, ClientJsonRpcMessage, CompleteRequestMethod,
    ConstString as _, CustomRequest, ErrorCode, GetPromptRequestMethod, JsonRpcError,
    ListPromptsRequestMethod, ListResourceTemplatesRequestMethod, ListResourcesRequestMethod,
    ListToolsRequestMethod, ReadResourceRequestMethod, RequestId,
};
use sa_limits::offload;
use sa_text::json::{object, why};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fast_path::respond;

/// The methods that the gateway answers in every revision.
const METHODS: [&str; 8] = [
    CallToolRequestMethod::VALUE,
    ListToolsRequestMethod::VALUE,
    ListPromptsRequestMethod::VALUE,
    GetPromptRequestMethod::VALUE,
    ListResourcesRequestMethod::VALUE,
    ListResourceTemplatesRequestMethod::VALUE,
    ReadResourceRequestMethod::VALUE,
    CompleteRequestMethod::VALUE,
];

/// The maximum length of an id in bytes.
const MAX_ID: usize = 256;

/// The body of a request with a JSON content type, kept in case it turns out to be unreadable.
pub(crate) struct UnreadableBody(Option<Bytes>);

impl UnreadableBody {
    pub(crate) fn of(request: &Request<Bytes>) -> Self {
        let says_json = |headers: &HeaderMap| {
            let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            kind.is_some_and(|kind| kind.starts_with("application/json"))
        };
        Self(says_json(request.headers()).then(|| request.body().clone()))
    }

    /// Returns the response if rmcp's status means that it could not read the message, or `None` if
    /// it could.
    pub(crate) async fn explain(self, status: StatusCode) -> Option<Response<Body>> {
        let body = self.0.filter(|_| status == StatusCode::UNSUPPORTED_MEDIA_TYPE)?;
        let error = offload::run_queued(body.len(), || explained(&body)).await;
        Some(respond(StatusCode::BAD_REQUEST, &error))
    }
}

/// Returns the error for a request that rmcp has no type for: invalid params, if the gateway
/// answers its method.
pub(crate) fn custom(request: &CustomRequest) -> ErrorData {
    let method = &*request.method;
    if !METHODS.contains(&method) {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    }
    let why = match request.params_as::<CallToolRequestParams>() {
        Err(error) if method == CallToolRequestMethod::VALUE => format!(": {}", why(&error)),
        _ => String::new(),
    };
    ErrorData::invalid_params(format!("the params of {method} are invalid{why}"), None)
}

fn explained(body: &[u8]) -> JsonRpcError {
    #[derive(Deserialize)]
    struct Rough<'a> {
        id: Option<RequestId>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
    }
    let rough: Result<Rough<'_>, _> = object(body);
    let is_request = rough.as_ref().is_ok_and(|rough| rough.id.is_some() && rough.method.is_some());
    let error = match (
        serde_json::from_slice::<Value>(body),
        serde_json::from_slice::<ClientJsonRpcMessage>(body),
    ) {
        (Err(error), _) => {
            ErrorData::parse_error(format!("the message is invalid: {}", why(&error)), None)
        }
        (Ok(_), Err(error)) if is_request => {
            ErrorData::invalid_params(format!("the request is invalid: {}", why(&error)), None)
        }
        _ => ErrorData::invalid_request("not a valid MCP message", None),
    };
    // A longer id is not sent back.
    let id = rough.ok().and_then(|rough| rough.id).filter(|id| id.to_string().len() <= MAX_ID);
    JsonRpcError::new(id, error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rmcp::model::ErrorCode;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(body: &str, code: ErrorCode, id: Option<i64>) {
        let answer = explained(body.as_bytes());
        assert_eq!(
            (answer.error.code, answer.id),
            (code, id.map(RequestId::Number)),
            "{body}: {}",
            answer.error.message
        );
    }

    #[test]
    fn unreadable_params_are_not_an_unknown_method() {
        let answer =
            |method: &str, params: Value| custom(&CustomRequest::new(method, Some(params)));
        for arguments in [json!([1]), json!("x"), json!(1)] {
            let answer = answer("tools/call", json!({ "name": "a", "arguments": arguments }));
            assert_eq!(answer.code, ErrorCode::INVALID_PARAMS, "{answer}");
            assert!(
                answer.message.contains("tools/call") && answer.message.contains("expected"),
                "{answer}"
            );
        }
        assert_eq!(answer("prompts/get", json!(1)).code, ErrorCode::INVALID_PARAMS);
        assert_eq!(answer("tools/cal", json!({})).code, ErrorCode::METHOD_NOT_FOUND);
    }

    #[test]
    fn unreadable_messages_get_an_error_with_their_id() {
        let call = |arguments: &str| {
            let params = format!(r#"{{"name":"a","arguments":{arguments}}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
        };
        check(&call(r#"{"x":"\ud800"}"#), ErrorCode::PARSE_ERROR, Some(7));
        check(&call(r#"{"x":1e999}"#), ErrorCode::PARSE_ERROR, Some(7));
        check(&call(r#"{"x":NaN}"#), ErrorCode::PARSE_ERROR, None);
        check("", ErrorCode::PARSE_ERROR, None);
        check("[]", ErrorCode::INVALID_REQUEST, None);
        check(r#"{"jsonrpc":"2.0","id":7}"#, ErrorCode::INVALID_REQUEST, Some(7));
    }

    proptest! {
        #[test]
        fn errors_for_unreadable_messages_are_short(
            text in sa_hostile::nearly(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "a", "arguments": {} } })),
            list in sa_hostile::list(&["2.0", "tools/call"]), noise in sa_hostile::noise(),
        ) {
            for body in [text.as_bytes(), list.as_bytes(), &noise] {
                let answer = serde_json::to_string(&explained(body)).unwrap();
                prop_assert!(answer.len() < sa_hostile::SHORT, "{} bytes", answer.len());
            }
        }
    }
}
