//! The raw body of a request, beside the values that rmcp has parsed.
//!
//! rmcp parses arguments into a tree, which sorts keys and rounds long numbers. A tool receives its
//! arguments unchanged, on this surface as on every other.

use axum::http::request::Parts;
use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use sa_limits::offload::Weight;
use sa_text::json::{Object, object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The body of a request, stored in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Body(pub(crate) Bytes);

/// Adds the expected size of the answer to a request, before rmcp serialises it.
pub(crate) fn weigh(context: &RequestContext<RoleServer>, bytes: usize) {
    if let Some(weight) =
        context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Weight>())
    {
        weight.add(bytes);
    }
}

/// Returns the arguments of a call exactly as the client sent them, if they can be found.
pub(crate) fn arguments(context: &RequestContext<RoleServer>) -> Option<String> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Object<Arguments<'a>>,
    }
    let Body(body) = context.extensions.get::<Parts>()?.extensions.get()?;
    object::<Message<'_>>(body).ok()?.params.0.as_object()
}

/// Returns the arguments inside the arguments of `call_tool`.
pub(crate) fn wrapped(outer: &str) -> Option<String> {
    object::<Arguments<'_>>(outer.as_bytes()).ok()?.as_object()
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Arguments<'_> {
    fn as_object(&self) -> Option<String> {
        self.arguments.map(RawValue::get).filter(|text| text.starts_with('{')).map(str::to_owned)
    }
}
