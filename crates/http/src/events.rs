//! Responses that stream server-sent events.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;

/// Returns a response that streams the received events.
pub fn sse_response(events: mpsc::Receiver<String>) -> Response {
    response_of(stream::unfold(
        events,
        |mut events| async move { Some((events.recv().await?, events)) },
    ))
}

/// Returns a response that streams events.
pub fn response_of(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let stream = events.map(|event| Ok::<_, Infallible>(Bytes::from(event)));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Body::from_stream(stream)).into_response()
}

/// Formats one event.
pub fn event(name: &str, json: &str) -> String {
    with_data(format!("event: {name}\n"), json)
}

/// Formats one event without a name, as in OpenAI's streams.
pub fn unnamed(json: &str) -> String {
    with_data(String::new(), json)
}

/// Writes each line of the JSON as a `data` line. JSON from other programs may contain line breaks.
fn with_data(mut text: String, json: &str) -> String {
    for line in json.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text
}
