//! What a client wrote, beside what rmcp has made of it.
//!
//! rmcp reads arguments into a tree, in which keys are sorted and long numbers are rounded. A tool gets them as they were
//! written, on this surface as on every other.

use axum::http::request::Parts;
use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use sa_core::aside::Weight;
use sa_core::json::{Object, object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The body of a request, among its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Body(pub(crate) Bytes);

/// Says how large the answer to a request is going to be, before it is given to rmcp to write down.
pub(crate) fn weigh(context: &RequestContext<RoleServer>, bytes: usize) {
    if let Some(weight) = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Weight>()) {
        weight.add(bytes);
    }
}

/// The arguments of a call as its client wrote them, where that can be told.
pub(crate) fn arguments(context: &RequestContext<RoleServer>) -> Option<String> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Object<Arguments<'a>>,
    }
    let Body(body) = context.extensions.get::<Parts>()?.extensions.get()?;
    object::<Message<'_>>(body).ok()?.params.0.as_object()
}

/// The arguments within the arguments of `call_tool`.
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
