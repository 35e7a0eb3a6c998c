//! The trace that a call continues.

use axum::http::HeaderMap;
use sa_core::call::TraceContext;

/// Continues the trace of the message (`_meta.traceparent`), which takes precedence because the
/// header may be that of a proxy. If that is missing or malformed, continues the header's trace.
pub(crate) fn trace(message: Option<&str>, headers: Option<&HeaderMap>) -> TraceContext {
    let header = headers.and_then(|headers| headers.get("traceparent")?.to_str().ok());
    TraceContext::continue_from(message.into_iter().chain(header))
}
