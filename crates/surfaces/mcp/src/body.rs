//! The raw body of a request, beside the values that rmcp has parsed.
//!
//! rmcp parses arguments into a tree, which sorts keys and rounds long numbers. A tool receives its
//! arguments unchanged, on this surface as on every other.

use std::error::Error;

use axum::body::Body as Sent;
use axum::http::request::Parts;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use sa_limits::offload::{Turns, Weight};
use sa_limits::received::Held;
use sa_text::json::{Object, object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The body of a request, stored in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Body(pub(crate) Bytes);

/// Adds the expected size of the answer to a request, before rmcp serialises it. The budget that
/// the answer holds is held until then.
pub(crate) fn weigh(context: &RequestContext<RoleServer>, bytes: usize, held: Held) {
    if let Some(weight) =
        context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Weight>())
    {
        weight.add(bytes);
        weight.hold(held);
    }
}

/// Returns the body of an answer that is produced while it is read. It may be large, too.
pub(crate) fn offloaded<E>(
    mut pieces: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    weight: Weight,
) -> Sent
where
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let mut turns = Turns::at(weight);
    Sent::from_stream(stream::poll_fn(move |cx| turns.poll(cx, |cx| pieces.poll_next_unpin(cx))))
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
