//! An answer to an agent that is sent as a notification: `tools/call` of `caller_tool_response`
//! without an `id`, which callers of the original relay protocol send. It takes effect, and the
//! sender does not learn the outcome.

use std::borrow::Cow;

use axum::http::Method;
use axum::http::Request;
use bytes::Bytes;
use sa_core::RawJson;
use sa_core::call::CallRequest;
use sa_text::json::{Object, object};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::caller::Caller;
use crate::trace::trace;

const RESPOND: &str = "caller_tool_response";

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Object<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow)]
    traceparent: Cow<'a, str>,
}

/// Returns the call that such a notification makes.
pub(crate) fn call(request: &Request<Bytes>, caller: &Caller) -> Option<CallRequest> {
    if request.method() != Method::POST || caller.revoked.is_cancelled() {
        return None;
    }
    let Message { id, method, params: Object(params) } = object(request.body()).ok()?;
    if id.is_some() || method != "tools/call" || params.name != RESPOND {
        return None;
    }
    let args = RawJson::parse(params.arguments.get()).ok()?;
    let meta = params.meta.and_then(|meta| serde_json::from_str::<Meta<'_>>(meta.get()).ok());
    let traceparent = meta.as_ref().map(|meta| &*meta.traceparent);
    Some(CallRequest {
        tool: RESPOND.to_owned(),
        args,
        view: caller.view(),
        surface: "mcp",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: trace(traceparent, Some(request.headers())),
    })
}
