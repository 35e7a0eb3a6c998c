//! An answer to an agent that is sent as a notification: `tools/call` of `caller_tool_response`
//! without an `id`, which callers of the original relay protocol send. It takes effect, and the
//! sender does not learn the outcome.

use axum::http::Method;
use axum::http::Request;
use bytes::Bytes;
use sa_core::RawJson;
use sa_core::call::{CallRequest, TraceContext};
use sa_text::json::{Object, object};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::caller::Caller;

const RESPOND: &str = "caller_tool_response";

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Object<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Returns the call that such a notification makes.
pub(crate) fn call(request: &Request<Bytes>, caller: &Caller) -> Option<CallRequest> {
    if request.method() != Method::POST || caller.revoked.is_cancelled() {
        return None;
    }
    let Message { id: None, method: "tools/call", params: Object(params) } =
        object(request.body()).ok()?
    else {
        return None;
    };
    let args = RawJson::parse(params.arguments.get()).ok().filter(|_| params.name == RESPOND)?;
    Some(CallRequest {
        tool: RESPOND.to_owned(),
        args,
        view: caller.view(),
        surface: "mcp",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: TraceContext::root(),
    })
}
