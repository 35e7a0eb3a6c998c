//! Sends a message to a server over HTTP, and reads its answer up to a size limit.
//!
//! rmcp's own client reads bodies of any length. It also forwards answers to unknown requests, so
//! that their callers wait without end. Apart from that, this code does the same.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse as Answer,
};
use sa_limits::budget::Refused;
use sa_limits::offload;
use sa_limits::received::Received;
use sa_lines::{bearable, is_unreadable_answer, no_answer, too_long};
use sa_text::json::parsed_bytes;
use serde_json::json;
use sse_stream::{Sse, SseStream};
use tracing::debug;

use crate::event_limit::{Cut, EventLimit};
use crate::expected::{Expected, request_id};
use crate::session_check::{Events, Failed, Headers, SessionCheck};
use crate::table::Marker;

/// Replaces a body that cannot be read.
const NO_BODY: &str = "<the body cannot be read>";

impl SessionCheck {
    pub(crate) async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<Answer, Failed> {
        let mut request =
            self.http.post(uri).header(ACCEPT, [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].join(", "));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            if is_reserved(&name) {
                return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
            }
            request = request.header(name, value);
        }
        let in_session = session.is_some();
        if let Some(session) = session {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = request.json(message).send().await?;
        check_challenge(&response)?;
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(Answer::Accepted),
            StatusCode::NOT_FOUND if in_session => Err(StreamableHttpError::SessionExpired),
            status if status.is_success() => {
                self.taken(response, Expected::after(message, max_bytes)).await
            }
            _ => refused(response, message, in_session, max_bytes).await,
        }
    }

    async fn taken(&self, response: Response, mut expected: Expected) -> Result<Answer, Failed> {
        // Some servers accept a notification with an empty 200 response.
        if expected.request_id.is_none() && response.content_length() == Some(0) {
            return Ok(Answer::Accepted);
        }
        let session = session_of(&response);
        if is(&response, EVENT_STREAM_MIME_TYPE) {
            return Ok(Answer::Sse(self.events(response, expected), session));
        }
        if !is(&response, JSON_MIME_TYPE) {
            let kind = response.headers().get(CONTENT_TYPE);
            let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = body(response, expected.max_bytes, &mut expected.received).await;
        let read = match body {
            Ok(body) => read(&body, &mut expected.received).await,
            Err(unread) => Err(unread),
        };
        let Some(request_id) = expected.request_id.clone() else {
            return match read {
                Err(Unread::Broken(error)) => Err(error.into()),
                read => Ok(read.map_or(Answer::Accepted, |body| Answer::Json(body, session))),
            };
        };
        let answer = match read {
            Ok(answer) => belonging(&self.label, request_id, answer),
            Err(Unread::Broken(error)) => return Err(error.into()),
            Err(Unread::TooLong) => ServerJsonRpcMessage::Error(too_long(&self.label, request_id)),
            Err(Unread::Refused(refused)) => ServerJsonRpcMessage::Error(expected.refuse(refused)),
            Err(Unread::Invalid(error)) => {
                debug!(%error, "cannot read a response of {}", self.label);
                return Err(StreamableHttpError::UnexpectedServerResponse(
                    error.to_string().into(),
                ));
            }
        };
        expected.deliver_count();
        Ok(Answer::Json(answer, session))
    }

    fn events(&self, response: Response, expected: Expected) -> Events {
        let received = Arc::new(Mutex::new(expected.received));
        let bytes = response.bytes_stream().scan(
            EventLimit::new(expected.max_bytes, Arc::clone(&received)),
            |event_limit, chunk| std::future::ready(event_limit.pass(chunk)),
        );
        let label = Arc::clone(&self.label);
        let Expected { request_id, waiting, is_direct, max_bytes, .. } = expected;
        let events = SseStream::from_bytes_stream(bytes).then(move |event| {
            let (label, request_id, waiting) =
                (Arc::clone(&label), request_id.clone(), waiting.clone());
            let counter = waiting.as_ref().map_or_else(Received::uncounted, Marker::received);
            let received = std::mem::replace(&mut *received.lock(), counter);
            let expected = Expected { request_id, waiting, is_direct, max_bytes, received };
            async move { shortened(&label, expected, event).await }
        });
        events.boxed()
    }
}

/// Prepares an event for rmcp's shared reader task. An oversized event becomes an error, and so
/// does an unreadable answer, which rmcp would skip. A large answer is handed to its waiting
/// caller directly.
async fn shortened(
    label: &str,
    mut expected: Expected,
    event: Result<Sse, SseError>,
) -> Result<Sse, SseError> {
    let Some(request_id) = expected.request_id.clone() else { return event };
    let cut = match &event {
        Err(SseError::Body(cut)) => cut.downcast_ref(),
        _ => None,
    };
    let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
    let replacement = match (data, data.map(|data| bearable(data.as_bytes())), cut) {
        // A stream error would look like a broken connection, which rmcp tries to resume.
        (_, Some(None), _) | (.., Some(Cut::TooLong)) => error(too_long(label, request_id)),
        (.., Some(Cut::Refused(refused))) => error(expected.refuse(refused.clone())),
        (_, Some(Some(Cow::Owned(thin))), _) => String::from_utf8(thin).ok(),
        (Some(data), ..) if is_unreadable_answer(data, &request_id) => {
            error(no_answer(label, request_id))
        }
        (Some(data), ..) => left(data, &mut expected).await,
        (None, ..) => None,
    };
    if data.is_some_and(|data| data.len() >= offload::LARGE) {
        expected.deliver_count();
    }
    match replacement {
        Some(replacement) => Ok(Sse { data: Some(replacement), ..event.unwrap_or_default() }),
        None => event,
    }
}

fn error(error: JsonRpcError) -> Option<String> {
    serde_json::to_string(&ServerJsonRpcMessage::Error(error)).ok()
}

/// Parses a large answer, offloaded, and hands it to the waiting caller. Returns the empty result
/// that rmcp receives in its stead.
async fn left(data: &str, expected: &mut Expected) -> Option<String> {
    if data.len() < offload::LARGE || !expected.is_direct {
        return None;
    }
    let response = match read(data.as_bytes(), &mut expected.received).await {
        Ok(ServerJsonRpcMessage::Response(response)) => response,
        Err(Unread::Refused(refused)) => return error(expected.refuse(refused)),
        _ => return None,
    };
    let (request_id, waiting) = (expected.request_id.as_ref()?, expected.waiting.as_ref()?);
    let is_left = response.id == *request_id && waiting.set_answer(response.result);
    is_left.then(|| json!({ "jsonrpc": "2.0", "id": request_id, "result": {} }).to_string())
}

/// Converts an error response to a result.
async fn refused(
    response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
    max_bytes: usize,
) -> Result<Answer, Failed> {
    let (status, is_json, session) =
        (response.status(), is(&response, JSON_MIME_TYPE), session_of(&response));
    let failure = match of_status(status, response.headers()) {
        Some(failure) if status == StatusCode::TOO_MANY_REQUESTS || !is_json => {
            return Err(failure.into());
        }
        failure => failure,
    };
    let mut expected = Expected::after(message, max_bytes);
    let body = body(response, expected.max_bytes, &mut expected.received).await.ok();
    expected.deliver_count();
    let text = body.as_deref().map_or(Cow::Borrowed(NO_BODY), String::from_utf8_lossy);
    let reported = match serde_json::from_str(&text) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    };
    // With a wrong or missing token, the rest of the response does not matter.
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        // A server that rejects a request before it reads it does not know its id, and sends
        // another one or none.
        let answer = |error| ServerJsonRpcMessage::error(error, request_id(message));
        // Servers that do not know the newer handshake use various errors for it.
        if !in_session && status.is_client_error() && is_discover(message) {
            let refusal = || {
                ErrorData::invalid_request(format!("server/discover: HTTP {status}: {text}"), None)
            };
            return Ok(Answer::Json(answer(reported.unwrap_or_else(refusal)), None));
        }
        if let Some(error) = reported.filter(|_| is_json) {
            return Ok(Answer::Json(answer(error), session));
        }
    }
    Err(match failure {
        Some(failure) => failure.into(),
        None => {
            StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}: {text}").into())
        }
    })
}

/// Returns the answer to the request, or an error if the message is no answer to it.
fn belonging(
    label: &str,
    request_id: RequestId,
    answer: ServerJsonRpcMessage,
) -> ServerJsonRpcMessage {
    match answer {
        ServerJsonRpcMessage::Error(mut error) => {
            error.id = Some(request_id);
            ServerJsonRpcMessage::Error(error)
        }
        // Some servers return a numeric id as a string.
        ServerJsonRpcMessage::Response(mut response)
            if response.id.to_string() == request_id.to_string() =>
        {
            response.id = request_id;
            ServerJsonRpcMessage::Response(response)
        }
        _ => ServerJsonRpcMessage::Error(no_answer(label, request_id)),
    }
}

fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

/// The reason why a body cannot be used.
enum Unread {
    Broken(reqwest::Error),
    /// It exceeds the limit, or would take too much memory once parsed.
    TooLong,
    /// The budget has no space for it.
    Refused(Refused),
    Invalid(serde_json::Error),
}

/// Reads the whole body. A body that is not read to its end closes its connection, or its stream.
async fn body(
    mut response: Response,
    max_bytes: usize,
    received: &mut Received,
) -> Result<Vec<u8>, Unread> {
    // If the length is known, the budget refuses the body before it is received.
    let length = response.content_length().and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= max_bytes).unwrap_or_default();
    received.grow(length).map_err(Unread::Refused)?;
    let mut body = Vec::with_capacity(length);
    while let Some(piece) = response.chunk().await.map_err(Unread::Broken)? {
        if body.len() + piece.len() > max_bytes {
            return Err(Unread::TooLong);
        }
        received.grow(body.len() + piece.len()).map_err(Unread::Refused)?;
        body.extend_from_slice(&piece);
    }
    let thin = match bearable(&body) {
        None => return Err(Unread::TooLong),
        Some(Cow::Owned(thin)) => Some(thin),
        Some(Cow::Borrowed(_)) => None,
    };
    Ok(thin.unwrap_or(body))
}

/// Parses a message, offloaded if it is large. The parsed values are counted first: many small ones
/// take far more memory than their text.
async fn read(body: &[u8], received: &mut Received) -> Result<ServerJsonRpcMessage, Unread> {
    let read = || {
        if body.len() >= offload::LARGE {
            received.grow(parsed_bytes(body)).map_err(Unread::Refused)?;
        }
        serde_json::from_slice(body).map_err(Unread::Invalid)
    };
    offload::run_queued(body.len(), read).await
}

/// Checks whether the server requires a token, or one with more scopes.
fn check_challenge(response: &Response) -> Result<(), Failed> {
    let Some(header) = response.headers().get(WWW_AUTHENTICATE) else { return Ok(()) };
    let unreadable = |_| {
        StreamableHttpError::UnexpectedServerResponse(
            "invalid www-authenticate header value".into(),
        )
    };
    let challenge = || header.to_str().map_err(unreadable);
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge()?.to_owned())))
        }
        StatusCode::FORBIDDEN => {
            let challenge = challenge()?;
            let error = InsufficientScopeError::new(challenge.to_owned(), scope_in(challenge));
            Err(StreamableHttpError::InsufficientScope(error))
        }
        _ => Ok(()),
    }
}

/// Returns the scopes that a challenge requires: `scope="files:read files:write"` or
/// `scope=files`.
fn scope_in(challenge: &str) -> Option<String> {
    const KEY: &str = "scope=";
    let at = challenge.to_ascii_lowercase().find(KEY)?;
    let value = &challenge[at + KEY.len()..];
    let scope = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?.0,
        None => value
            .split(|c: char| c == ',' || c == ';' || c.is_whitespace())
            .next()
            .filter(|scope| !scope.is_empty())?,
    };
    Some(scope.to_owned())
}

/// Returns the status that rmcp reports for a server with an internal error or a rate limit.
fn of_status(status: StatusCode, headers: &HeaderMap) -> Option<HttpStatusError> {
    let retry_after =
        headers.get(RETRY_AFTER).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
        .then(|| HttpStatusError::new(status.as_u16(), retry_after.map(str::to_owned)))
}

fn is_reserved(name: &HeaderName) -> bool {
    [ACCEPT.as_str(), HEADER_SESSION_ID, HEADER_LAST_EVENT_ID]
        .iter()
        .any(|own| name.as_str().eq_ignore_ascii_case(own))
}

fn is(response: &Response, kind: &str) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|own| own.as_bytes().starts_with(kind.as_bytes()))
}

fn session_of(response: &Response) -> Option<String> {
    Some(response.headers().get(HEADER_SESSION_ID)?.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rmcp::model::JsonRpcMessage;
    use sa_limits::budget::{Holder, Limit, SharedBudget};

    use super::*;

    #[tokio::test]
    async fn many_small_values_count_with_their_size_in_memory() {
        let limit = Limit { name: "b", what: "bytes", key: "k", remedy: "wait", total: 64 << 20 };
        let budget = SharedBudget::new(limit);
        let numbers = vec!["0"; 200_000].join(",");
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":[{numbers}]}}}}"#);
        let mut first = Received::counted(budget.share(&Holder::named("a")));
        assert!(read(body.as_bytes(), &mut first).await.is_ok());
        assert!(budget.used() > 10_000_000, "{} for {}", budget.used(), body.len());
        let _others = budget.charge(&Holder::named("a"), 48 << 20);
        let mut second = Received::counted(budget.share(&Holder::named("a")));
        assert!(matches!(read(body.as_bytes(), &mut second).await, Err(Unread::Refused(_))));
        let small = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(read(small, &mut second).await.is_ok());
    }

    proptest! {
        #[test]
        fn a_scope_is_a_part_of_its_challenge(
            challenge in sa_hostile::text(&["Bearer ", "scope=", "Scope=", "\"", "a:b", ",", ";", "error=\"insufficient_scope\""]),
        ) {
            if let Some(scope) = scope_in(&challenge) {
                prop_assert!(challenge.contains(&scope) && !scope.is_empty() || challenge.contains("\"\""));
            }
        }

        #[test]
        fn a_scope_is_read_as_it_is_written(scope in "[a-z:/. ]{1,20}", before in "(realm=\"x\", )?") {
            let challenge = format!("Bearer {before}SCOPE=\"{scope}\", error=\"insufficient_scope\"");
            prop_assert_eq!(scope_in(&challenge), Some(scope));
        }

        /// Every message from a server becomes an answer with the id of the request.
        #[test]
        fn every_response_answers_its_request(
            text in sa_hostile::nearly(json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } })), number in 0_i64..10,
        ) {
            let request_id = RequestId::Number(number);
            if let Ok(answer) = serde_json::from_str(&text) {
                match belonging("it", request_id.clone(), answer) {
                    JsonRpcMessage::Response(response) => prop_assert_eq!(response.id, request_id),
                    JsonRpcMessage::Error(error) => prop_assert_eq!(error.id, Some(request_id)),
                    other => prop_assert!(false, "{other:?} is no answer"),
                }
            }
        }
    }
}
