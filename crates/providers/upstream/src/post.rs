//! Sends a message to a server over HTTP, and reads its answer up to a size limit.
//!
//! rmcp's own client reads bodies of any length. It also forwards answers to unknown requests, so
//! that their callers wait without end. Apart from that, this code does the same.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions as _, JsonRpcError, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse as Answer,
};
use sa_limits::offload;
use sa_lines::{bearable, is_unreadable_answer, no_answer, too_long};
use serde_json::json;
use sse_stream::{Sse, SseStream};
use tracing::debug;

use crate::gauge::{Cut, Gauge};
use crate::observed::{Events, Failed, Headers, Observed};
use crate::table::Marker;

/// Replaces a body that cannot be read.
const NO_BODY: &str = "<the body cannot be read>";

impl Observed {
    pub(crate) async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
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
                self.taken(response, asked(message), waiting(message), most).await
            }
            _ => refused(response, message, in_session, most).await,
        }
    }

    async fn taken(
        &self,
        response: Response,
        asked: Option<RequestId>,
        waiting: Option<Marker>,
        most: usize,
    ) -> Result<Answer, Failed> {
        // Some servers accept a notification with an empty 200 response.
        if asked.is_none() && response.content_length() == Some(0) {
            return Ok(Answer::Accepted);
        }
        let session = session_of(&response);
        if is(&response, EVENT_STREAM_MIME_TYPE) {
            return Ok(Answer::Sse(self.events(response, asked, waiting, most), session));
        }
        if !is(&response, JSON_MIME_TYPE) {
            let kind = response.headers().get(CONTENT_TYPE);
            let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = body(response, most).await?;
        let read = async |body: Vec<u8>| {
            offload::run_queued(body.len(), || serde_json::from_slice(&body)).await
        };
        let Some(asked) = asked else {
            let said = match body {
                Some(body) => read(body).await.ok(),
                None => None,
            };
            return Ok(said.map_or(Answer::Accepted, |said| Answer::Json(said, session)));
        };
        let answer = match body {
            None => ServerJsonRpcMessage::Error(too_long(&self.who, asked)),
            Some(body) => match read(body).await {
                Ok(answer) => belonging(&self.who, asked, answer),
                Err(error) => {
                    debug!(%error, "cannot read a response of {}", self.who);
                    return Err(StreamableHttpError::UnexpectedServerResponse(
                        error.to_string().into(),
                    ));
                }
            },
        };
        Ok(Answer::Json(answer, session))
    }

    fn events(
        &self,
        response: Response,
        asked: Option<RequestId>,
        waiting: Option<Marker>,
        most: usize,
    ) -> Events {
        let bytes = response
            .bytes_stream()
            .scan(Gauge::new(most), |gauge, chunk| std::future::ready(gauge.pass(chunk)));
        let who = Arc::clone(&self.who);
        let events = SseStream::from_bytes_stream(bytes).then(move |event| {
            let (who, asked, waiting) = (Arc::clone(&who), asked.clone(), waiting.clone());
            async move { shortened(&who, asked, waiting, event).await }
        });
        events.boxed()
    }
}

/// Prepares an event for rmcp's shared reader task. An oversized event becomes an error, and so
/// does an unreadable answer, which rmcp would skip. A large answer is handed to its waiting
/// caller directly.
async fn shortened(
    who: &str,
    asked: Option<RequestId>,
    waiting: Option<Marker>,
    event: Result<Sse, SseError>,
) -> Result<Sse, SseError> {
    let Some(asked) = asked else { return event };
    let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
    let told = match (data, data.map(|data| bearable(data.as_bytes())), &event) {
        // A stream error would look like a broken connection, which rmcp tries to resume.
        (_, Some(None), _) => error(too_long(who, asked)),
        (.., Err(SseError::Body(cut))) if matches!(cut.downcast_ref(), Some(Cut::TooLong)) => {
            error(too_long(who, asked))
        }
        (_, Some(Some(Cow::Owned(thin))), _) => String::from_utf8(thin).ok(),
        (Some(data), ..) if is_unreadable_answer(data, &asked) => error(no_answer(who, asked)),
        (Some(data), ..) => match waiting {
            Some(waiting) => left(data, &asked, &waiting).await,
            None => None,
        },
        (None, ..) => None,
    };
    match told {
        Some(told) => Ok(Sse { data: Some(told), ..event.unwrap_or_default() }),
        None => event,
    }
}

fn error(error: JsonRpcError) -> Option<String> {
    serde_json::to_string(&ServerJsonRpcMessage::Error(error)).ok()
}

/// Parses a large answer, offloaded, and hands it to the waiting caller. Returns the empty result
/// that rmcp receives in its stead.
async fn left(data: &str, asked: &RequestId, waiting: &Marker) -> Option<String> {
    if data.len() < offload::LARGE {
        return None;
    }
    let read = offload::run_queued(data.len(), || serde_json::from_str(data)).await;
    let Ok(ServerJsonRpcMessage::Response(response)) = read else { return None };
    let is_left = response.id == *asked && waiting.leave(response.result);
    is_left.then(|| json!({ "jsonrpc": "2.0", "id": asked, "result": {} }).to_string())
}

/// Converts an error response to a result.
async fn refused(
    response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
    most: usize,
) -> Result<Answer, Failed> {
    let (status, is_json, session) =
        (response.status(), is(&response, JSON_MIME_TYPE), session_of(&response));
    let trouble = match of_status(status, response.headers()) {
        Some(trouble) if status == StatusCode::TOO_MANY_REQUESTS || !is_json => {
            return Err(trouble.into());
        }
        trouble => trouble,
    };
    let body = body(response, most).await.ok().flatten();
    let text = body.as_deref().map_or(Cow::Borrowed(NO_BODY), String::from_utf8_lossy);
    let said = match serde_json::from_str(&text) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    };
    // With a wrong or missing token, the rest of the response does not matter.
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        // A server that rejects a request before it reads it does not know its id, and sends
        // another one or none.
        let answer = |error| ServerJsonRpcMessage::error(error, asked(message));
        // Servers that do not know the newer handshake use various errors for it.
        if !in_session && status.is_client_error() && is_discover(message) {
            let refusal = || {
                ErrorData::invalid_request(format!("server/discover: HTTP {status}: {text}"), None)
            };
            return Ok(Answer::Json(answer(said.unwrap_or_else(refusal)), None));
        }
        if let Some(error) = said.filter(|_| is_json) {
            return Ok(Answer::Json(answer(error), session));
        }
    }
    Err(match trouble {
        Some(trouble) => trouble.into(),
        None => {
            StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}: {text}").into())
        }
    })
}

/// Returns the answer to the request, or an error if the message is no answer to it.
fn belonging(who: &str, asked: RequestId, answer: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    match answer {
        ServerJsonRpcMessage::Error(mut error) => {
            error.id = Some(asked);
            ServerJsonRpcMessage::Error(error)
        }
        // Some servers return a numeric id as a string.
        ServerJsonRpcMessage::Response(mut response)
            if response.id.to_string() == asked.to_string() =>
        {
            response.id = asked;
            ServerJsonRpcMessage::Response(response)
        }
        _ => ServerJsonRpcMessage::Error(no_answer(who, asked)),
    }
}

fn asked(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    if let ClientJsonRpcMessage::Request(request) = message {
        Some(request.id.clone())
    } else {
        None
    }
}

/// Returns the marker of the waiting caller, if rmcp does not need the answer itself. rmcp reads
/// the answers to list requests.
fn waiting(message: &ClientJsonRpcMessage) -> Option<Marker> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let is_to_be_passed_on = matches!(
        request.request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::ReadResourceRequest(_)
            | ClientRequest::GetPromptRequest(_)
    );
    request.request.extensions().get::<Marker>().filter(|_| is_to_be_passed_on).cloned()
}

fn is_discover(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)))
}

/// Returns the whole body, or `None` if it exceeds the limit or would take too much memory once
/// parsed.
async fn body(mut response: Response, most: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    let thin = match bearable(&body) {
        None => return Ok(None),
        Some(Cow::Owned(thin)) => Some(thin),
        Some(Cow::Borrowed(_)) => None,
    };
    Ok(Some(thin.unwrap_or(body)))
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

    use super::*;

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
        fn whatever_comes_is_an_answer_to_what_was_asked(
            text in sa_hostile::nearly(json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } })), number in 0_i64..10,
        ) {
            let asked = RequestId::Number(number);
            if let Ok(answer) = serde_json::from_str(&text) {
                match belonging("it", asked.clone(), answer) {
                    JsonRpcMessage::Response(response) => prop_assert_eq!(response.id, asked),
                    JsonRpcMessage::Error(error) => prop_assert_eq!(error.id, Some(asked)),
                    other => prop_assert!(false, "{other:?} is no answer"),
                }
            }
        }
    }
}
