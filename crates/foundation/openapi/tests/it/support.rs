//! Small documents for tests.

use sa_openapi::{Document, HttpRequest, Json, RequestError, Settings};
use serde_json::{Value, json};
use url::Url;

/// Returns a document with one operation, `call`, at `/call`.
pub(crate) fn one(operation: Value) -> Document {
    with(operation, json!({}))
}

/// Returns a document with one operation and components.
#[track_caller]
pub(crate) fn with(mut operation: Value, components: Value) -> Document {
    operation["operationId"] = json!("call");
    document(json!({"/call": {"post": operation}}), components)
}

#[track_caller]
pub(crate) fn document(paths: Value, components: Value) -> Document {
    parse(&json!({
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example.com"}],
        "paths": paths,
        "components": components,
    }))
}

#[track_caller]
pub(crate) fn parse(document: &Value) -> Document {
    Document::parse(document.to_string().as_bytes(), None).unwrap()
}

pub(crate) fn call(
    document: &Document,
    arguments: impl Into<Json>,
) -> Result<HttpRequest, RequestError> {
    document.operation("call").unwrap().request(&arguments.into(), &Settings::default())
}

#[track_caller]
pub(crate) fn schema(document: &Document, name: &str) -> Value {
    serde_json::from_str(document.operation(name).unwrap().input_schema()).unwrap()
}

pub(crate) fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut found = request.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{name} is there twice");
    value
}

/// Returns path and query.
pub(crate) fn target(request: &HttpRequest) -> String {
    request.url.as_str().strip_prefix("https://api.example.com").unwrap().to_owned()
}

pub(crate) fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}
