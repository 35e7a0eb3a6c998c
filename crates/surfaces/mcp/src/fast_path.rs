//! The short path of a plain call.
//!
//! `rmcp` serves each request like a connection: with four tasks and as many channels between them,
//! each of which may wake another of the runtime's workers. Calls that report progress, are
//! cancelled by id or become a task need them. Most calls of the newer era are one request with one
//! answer. The task of their HTTP connection makes them here: no other task wakes up, and the cost
//! is half as much.
//!
//! Any unusual part of a request (a header, a field, a capability, an error) sends it to the long
//! path, which alone validates requests. The short path rejects nothing, and its answers equal
//! those of the long one, except that a result's JSON is passed on unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body as Answer;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ErrorCode, JsonRpcMessage, JsonRpcResponse,
    JsonRpcVersion2_0, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use sa_core::call::CallRequest;
use sa_core::router::Finished;
use sa_core::{QuestionMode, RawJson, Schema};
use sa_text::json::{self, Object};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::{CallStep, Client, Running};
use crate::caller::Caller;
use crate::convert;
use crate::questions::{self, CallIdentity};
use crate::shared::Shared;
use crate::trace::trace;

const METHOD: &str = "tools/call";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const MCP_METHOD: &str = "mcp-method";
const MCP_NAME: &str = "mcp-name";

/// The initial capacity for an answer, which avoids repeated growth.
const USUAL_ANSWER: usize = 512;

/// A call that needs only its answer.
pub(crate) struct PlainCall {
    id: RequestId,
    request: CallRequest,
    capabilities: ClientCapabilities,
}

impl PlainCall {
    /// Returns the call of a request, if it is a plain one.
    pub(crate) fn of(request: &Request<Bytes>, caller: &Caller, shared: &Shared) -> Option<Self> {
        let header = named_by_plain_headers(request.headers())
            .filter(|_| request.method() == Method::POST)?;
        let Body { id, params: Object(params), .. } = Body::parse(request.body())?;
        let name = &*params.name;
        // A name with this prefix may be encoded.
        if header != name || name.starts_with("=?") {
            return None;
        }
        // A search has its own tools, and some tools require arguments repeated in headers.
        let is_special =
            shared.searches(caller) || shared.wants_headers(name, &caller.principal).is_some();
        if is_special || caller.revoked.is_cancelled() {
            return None;
        }
        let args = match params.arguments {
            Some(written) if written.get().starts_with('{') => RawJson::from_checked(written.get()),
            Some(_) => return None,
            None => RawJson::empty_object(),
        };
        Some(Self {
            id,
            request: CallRequest {
                tool: params.name.into_owned(),
                args,
                view: caller.view(),
                surface: "mcp",
                session_key: None,
                timeout: None,
                idle_timeout: None,
                idempotency_key: None,
                trace: trace(params.meta.0.traceparent, Some(request.headers())),
            },
            capabilities: params.meta.0.capabilities,
        })
    }

    /// Makes the call. Dropping the future, as the connection does when its client leaves, cancels
    /// the call.
    pub(crate) async fn answer(self, shared: &Shared) -> Response<Answer> {
        let Self { id, request, capabilities } = self;
        let client = Client {
            wants_progress: false,
            log: None,
            question_mode: QuestionMode::Response,
            capabilities: Some(capabilities),
            searches: false,
        };
        let (tool, args) = (request.tool.clone(), request.args.clone());
        let principal = Arc::clone(&request.view.principal.id);
        let mut running = Running::start(shared, request, client);
        let response = match running.next_step_detached().await {
            CallStep::Ended(finished) => {
                return finished.render(move |finished| render(&running, finished, id)).await;
            }
            CallStep::Asks(pending) => {
                let mut count = 0;
                let pending = questions::name(pending, &mut count);
                // The arguments are parsed like on the long path, because a client that is asked a
                // question returns on that path.
                let arguments = serde_json::from_str(args.as_str()).unwrap_or_default();
                let identity = CallIdentity { principal, tool, arguments };
                Ok(shared.suspended.suspend(identity, count, running, pending))
            }
            CallStep::Cancelled => Err(ErrorData::internal_error("cancelled", None)),
        };
        full_response(response, id)
    }
}

/// Returns the answer to a call that has ended.
fn render(running: &Running, finished: &Finished, id: RequestId) -> Response<Answer> {
    let fits = |schema: &Schema| {
        finished.outcome.as_ref().is_ok_and(|output| schema.result_error(&output.content).is_none())
    };
    let plain = convert::plain(&finished.outcome).filter(|plain| {
        running.listed_output().is_none_or(|schema| plain.is_structured() && fits(&schema))
    });
    match plain {
        Some(result) => {
            respond(StatusCode::OK, &JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id, result })
        }
        None => full_response(running.answer(finished, true), id),
    }
}

fn full_response(response: Result<CallToolResponse, ErrorData>, id: RequestId) -> Response<Answer> {
    let message = match response {
        Ok(response) => ServerJsonRpcMessage::response(ServerResult::from(response), id),
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    };
    respond(status(&message), &message)
}

/// Returns the tool name in the headers. The protocol's headers must each occur once, with the
/// value that nearly all clients send, and no others may occur.
fn named_by_plain_headers(headers: &HeaderMap) -> Option<&str> {
    const ALL: u8 = 0b1_1111;
    let (mut seen, mut tool) = (0, None);
    for (name, value) in headers {
        let text = || value.to_str().unwrap_or_default();
        let (header, is_plain) = match name.as_str() {
            PROTOCOL_VERSION => (1, value == ProtocolVersion::V_2026_07_28.as_str()),
            MCP_METHOD => (1 << 1, value == METHOD),
            MCP_NAME => {
                tool = Some(value.to_str().ok()?);
                (1 << 2, true)
            }
            "content-type" => (1 << 3, text().starts_with("application/json")),
            "accept" => (
                1 << 4,
                text().contains("application/json") && text().contains("text/event-stream"),
            ),
            other if other.starts_with("mcp-") => return None,
            _ => continue,
        };
        if !is_plain || seen & header != 0 {
            return None;
        }
        seen |= header;
    }
    tool.filter(|_| seen == ALL)
}

/// A request with the fields of every request of the era, and no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    jsonrpc: &'a str,
    id: RequestId,
    method: &'a str,
    #[serde(borrow)]
    params: Object<Params<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta", borrow)]
    meta: Object<Meta<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientInfo", default)]
    _client: IgnoredAny,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: ClientCapabilities,
    traceparent: Option<&'a str>,
    #[serde(rename = "tracestate", default)]
    _tracestate: IgnoredAny,
}

impl<'a> Body<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        // The check covers the whole body, including parts that are skipped here, because the long
        // path reads them, too.
        let body = std::str::from_utf8(body).ok().filter(|body| json::check(body).is_ok())?;
        let Object(body): Object<Self> = serde_json::from_str(body).ok()?;
        let plain = body.jsonrpc == "2.0"
            && body.method == METHOD
            && body.params.0.meta.0.version == ProtocolVersion::V_2026_07_28.as_str()
            && !body.params.0.meta.0.capabilities.supports_tasks();
        plain.then_some(body)
    }
}

pub(crate) fn respond(status: StatusCode, message: &impl Serialize) -> Response<Answer> {
    let mut body = Vec::with_capacity(USUAL_ANSWER);
    let status = match serde_json::to_writer(&mut body, message) {
        Ok(()) => status,
        Err(error) => {
            body = error.to_string().into_bytes();
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    let mut response = Response::new(Answer::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the HTTP status of an error, if the era defines one.
fn status(message: &ServerJsonRpcMessage) -> StatusCode {
    let JsonRpcMessage::Error(error) = message else { return StatusCode::OK };
    match error.error.code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body(change: impl FnOnce(&mut Value)) -> String {
        let mut body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "a.b", "arguments": { "x": 1 }, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            },
        }});
        change(&mut body);
        body.to_string()
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), plain: bool) {
        let body = body(change);
        assert_eq!(Body::parse(body.as_bytes()).is_some(), plain, "{body}");
    }

    #[test]
    fn only_a_plain_request_uses_the_fast_path() {
        check(|_| {}, true);
        check(|body| body["id"] = json!("x"), true);
        check(|body| drop(body["params"].as_object_mut().unwrap().remove("arguments")), true);
        let meta = |body: &mut Value, key: &str, value: Value| body["params"]["_meta"][key] = value;
        check(|body| meta(body, "progressToken", json!(1)), false);
        check(|body| meta(body, "io.modelcontextprotocol/logLevel", json!("info")), false);
        check(|body| meta(body, "traceparent", json!("00-1-1-01")), true);
        check(|body| meta(body, "traceparent", json!(1)), false);
        check(|body| meta(body, "tracestate", json!("a=b")), true);
        check(
            |body| meta(body, "io.modelcontextprotocol/protocolVersion", json!("2025-11-25")),
            false,
        );
        check(|body| meta(body, "io.modelcontextprotocol/clientCapabilities", json!(1)), false);
        let tasks =
            serde_json::to_value(ClientCapabilities::builder().enable_tasks().build()).unwrap();
        check(|body| meta(body, "io.modelcontextprotocol/clientCapabilities", tasks), false);
        check(|body| drop(body["params"].as_object_mut().unwrap().remove("_meta")), false);
        check(|body| body["params"]["requestState"] = json!("x"), false);
        check(|body| body["params"]["inputResponses"] = json!({}), false);
        check(|body| body["params"]["name"] = json!(1), false);
        check(|body| body["method"] = json!("tools/list"), false);
        check(|body| body["jsonrpc"] = json!("1.0"), false);
        check(|body| body["id"] = Value::Null, false);
        check(|body| body["more"] = json!(1), false);
        check(|body| *body = json!([body.clone()]), false);
        assert!(
            Body::parse(br#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/call"}"#)
                .is_none()
        );
    }

    #[test]
    fn a_list_is_no_object() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        check(
            |body| {
                *body = json!(["2.0", 1, "tools/call", { "name": "a.b", "arguments": {}, "_meta": meta }]);
            },
            false,
        );
        check(|body| body["params"] = json!(["a.b", {}, meta]), false);
        check(|body| body["params"]["_meta"] = json!(["2026-07-28", {}, {}]), false);
    }

    #[test]
    fn an_unreadable_request_uses_the_long_path() {
        let usual = body(|_| {});
        for (place, unusual) in [
            (r#""x":1"#, r#""x":1e999"#),
            (r#""name":"c""#, r#""name":"\ud800""#),
            ("{}", r#"{"x":-1e999}"#),
        ] {
            let unusual = usual.replacen(place, unusual, 1);
            assert_ne!(unusual, usual);
            assert!(Body::parse(unusual.as_bytes()).is_none(), "{unusual}");
        }
        let deep =
            usual.replacen("{}", &format!("{{\"x\":{}{}}}", "[".repeat(120), "]".repeat(120)), 1);
        assert!(Body::parse(deep.as_bytes()).is_none());
        let unusual = [usual.replacen('c', "\u{e9}", 1).into_bytes(), usual.clone().into_bytes()]
            .map(|mut bytes| {
                let at = bytes.iter().rposition(|byte| *byte == b'1').unwrap();
                bytes[at] = 0xff;
                bytes
            });
        assert!(unusual.iter().all(|bytes| Body::parse(bytes).is_none()));
        assert!(Body::parse(usual.as_bytes()).is_some());
    }

    #[track_caller]
    fn check_headers(change: impl FnOnce(&mut HeaderMap), plain: bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json; charset=utf-8"),
            (PROTOCOL_VERSION, "2026-07-28"),
            (MCP_METHOD, METHOD),
            (MCP_NAME, "a.b"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        change(&mut headers);
        assert_eq!(named_by_plain_headers(&headers), plain.then_some("a.b"), "{headers:?}");
    }

    #[test]
    fn only_plain_headers_use_the_fast_path() {
        let value = HeaderValue::from_static;
        check_headers(|_| {}, true);
        check_headers(|headers| drop(headers.insert("x-else", value("1"))), true);
        check_headers(|headers| drop(headers.insert(PROTOCOL_VERSION, value("2025-11-25"))), false);
        check_headers(
            |headers| assert!(headers.append(PROTOCOL_VERSION, value("2026-07-28"))),
            false,
        );
        check_headers(|headers| assert!(headers.append(MCP_NAME, value("a.c"))), false);
        check_headers(|headers| drop(headers.remove(MCP_NAME)), false);
        check_headers(|headers| drop(headers.remove("accept")), false);
        check_headers(|headers| assert!(headers.append("accept", value("*/*"))), false);
        check_headers(|headers| drop(headers.insert(MCP_METHOD, value("tools/list"))), false);
        check_headers(|headers| drop(headers.insert("mcp-session-id", value("1"))), false);
        check_headers(|headers| drop(headers.insert("mcp-param-x", value("1"))), false);
        check_headers(|headers| drop(headers.insert("accept", value("application/json"))), false);
        check_headers(|headers| drop(headers.insert("content-type", value("text/plain"))), false);
    }

    fn usual() -> Value {
        serde_json::from_str(&body(|_| {})).unwrap()
    }

    proptest::proptest! {
        /// The long path reads a plain request in the same way.
        #[test]
        fn the_long_path_reads_plain_requests_in_the_same_way(
            text in sa_hostile::nearly(usual()), noise in sa_hostile::noise(), list in sa_hostile::list(&["2.0", "initialize"]),
        ) {
            let _ = Body::parse(&noise);
            let _ = crate::service::opens_session(&noise.into());
            proptest::prop_assert!(!crate::service::opens_session(&list.into()));
            // A request with arguments that are not an object is later left to the long path.
            let is_plain = |body: &Body<'_>| body.params.0.arguments.is_none_or(|written| written.get().starts_with('{'));
            if let Some(body) = Body::parse(text.as_bytes()).filter(is_plain) {
                let full_response: rmcp::model::ClientJsonRpcMessage = serde_json::from_str(&text).unwrap();
                let JsonRpcMessage::Request(request) = full_response else { panic!("{text} is no request") };
                let rmcp::model::ClientRequest::CallToolRequest(call) = request.request else { panic!("{text} is no call") };
                proptest::prop_assert_eq!(&request.id, &body.id);
                proptest::prop_assert_eq!(&*call.params.name, &*body.params.0.name);
                let written = body.params.0.arguments.map(|written| serde_json::from_str::<Value>(written.get()).unwrap());
                proptest::prop_assert_eq!(call.params.arguments.map(Value::Object), written);
            }
        }
    }
}
