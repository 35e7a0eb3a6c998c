//! A call of a tool that the path names.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use sa_core::call::{CallRequest, TraceContext};
use sa_core::{CallError, CallErrorKind, CallId, Finished, Output, RawJson};
use sa_http::auth::unauthorized;
use sa_http::body::whole;
use sa_http::{
    CALL_ID, DirectRequest, DirectRoute, Http, Identity, JSON, Problem, Refused, WireBlock, parse,
    query,
};
use sa_text::json::ObjectWriter;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::stream;

pub(super) const MAX_KEY: usize = 256;
const MAX_TOOL: usize = 1_024;
/// The header that many HTTP clients set for each call.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallBody<'a> {
    /// The arguments according to the tool's `input_schema`. If absent, an empty object.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    pub(super) args: Option<&'a RawValue>,
    /// The session of the call, which nodes receive. The caller's tools of the session can be
    /// called if it belongs to the token.
    #[serde(borrow)]
    pub(super) session_key: Option<Cow<'a, str>>,
    /// Hard time limit, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    /// Time limit that each progress report restarts, in milliseconds. It replaces the tool's own.
    pub(super) idle_timeout_ms: Option<u64>,
    /// A retry with the same key gets the outcome of the first call and does not run again.
    #[serde(borrow)]
    pub(super) idempotency_key: Option<Cow<'a, str>>,
}

/// The output of [`done_json`].
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct CallDone<'a> {
    call_id: String,
    ok: bool,
    /// Any JSON.
    #[schema(value_type = serde_json::Value)]
    result: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<WireBlock<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    attachments: Vec<sa_protocol::Attachment<'static>>,
    duration_ms: u64,
}

/// Calls a tool.
///
/// Responds with JSON, or with a stream of events if the client accepts `text/event-stream`.
#[utoipa::path(post, path = "/v1/tools/{name}/call", tag = "tools", request_body = Option<CallBody>,
    params(("name" = String, Path, description = "The tool's exposed name, or the provider's own name for it"),
        ("channel" = Option<String>, Query, description = "A channel whose methods can also be called"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same as `idempotency_key` in the body. If both are given, they must be equal")),
    responses((status = 200, body = CallDone), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem),
        (status = 429, body = Problem), (status = 502, body = Problem), (status = 503, body = Problem), (status = 504, body = Problem)))]
async fn call(
    http: Http,
    DirectRequest { identity, segment: name, request }: DirectRequest,
) -> Result<Response, Problem> {
    let (Parts { headers, uri, .. }, body) = request.into_parts();
    let holder = identity.principal.holder();
    // The body is dropped before the call runs, because the call has its own copy of the arguments.
    let request = {
        let body = whole(&http, &holder, body, http.max_body_bytes).await?;
        let body: CallBody<'_> = if body.is_empty() { CallBody::default() } else { parse(&body)? };
        let channel = query::channel(&uri)?;
        let view = http.view_in(&identity, body.session_key.as_deref(), channel.as_deref());
        let mut request = call_request(&http, "rest", identity, name, body, &headers)?;
        request.view =
            view.ok_or_else(|| Problem::not_in_channel(channel.as_deref().unwrap_or_default()))?;
        request
    };
    if accepts_events(&headers) {
        return Ok(stream::streamed(&http, request));
    }
    let running = http.router.start(request, None);
    let finished = running.outcome().await;
    Ok(finished.render(finished_response).await)
}

/// Returns the route, which is direct because most requests are calls.
pub fn route(http: &Http) -> DirectRoute {
    let http = http.clone();
    DirectRoute::new(Method::POST, "/v1/tools/{name}/call", move |request| {
        call(http.clone(), request)
    })
}

/// The OpenAPI description of the route.
#[derive(utoipa::OpenApi)]
#[openapi(paths(call))]
pub(super) struct Described;

/// Checks the lengths of words that the history stores completely. No tool name comes near the
/// limit.
pub(super) fn check_words(
    tool: &str,
    session_key: Option<&str>,
    idempotency_key: Option<&str>,
) -> Result<(), String> {
    if tool.len() > MAX_TOOL {
        return Err(format!("the tool name has more than {MAX_TOOL} bytes"));
    }
    if session_key.is_some_and(|key| key.len() > MAX_KEY) {
        return Err(format!("session_key must have at most {MAX_KEY} bytes"));
    }
    if idempotency_key.is_some_and(|key| key.is_empty() || key.len() > MAX_KEY) {
        return Err(format!("idempotency_key must have 1 to {MAX_KEY} bytes"));
    }
    Ok(())
}

pub(super) fn check_times(
    timeout_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
) -> Result<(), String> {
    for (name, given) in [("timeout_ms", timeout_ms), ("idle_timeout_ms", idle_timeout_ms)] {
        if given == Some(0) {
            return Err(format!("{name} must be at least 1"));
        }
    }
    Ok(())
}

/// Creates the call for both REST routes.
pub(super) fn call_request(
    http: &Http,
    surface: &'static str,
    identity: Identity,
    tool: String,
    body: CallBody<'_>,
    headers: &HeaderMap,
) -> Result<CallRequest, Problem> {
    let key = idempotency_key(headers, body.idempotency_key).map_err(Problem::bad_request)?;
    check_words(&tool, body.session_key.as_deref(), key.as_deref())
        .map_err(Problem::bad_request)?;
    check_times(body.timeout_ms, body.idle_timeout_ms).map_err(Problem::bad_request)?;
    // The body may have taken long, and the token was checked before it.
    if identity.revoked.is_cancelled() {
        return Err(unauthorized(Refused::Revoked));
    }
    let args = body.args.map_or_else(|| Ok(RawJson::empty_object()), RawJson::part);
    let args = args.map_err(|error| {
        http.refused("bad_request");
        let mistake = format!("args cannot be read: {error}");
        Problem::from(&CallError::new(CallErrorKind::InvalidArgs, mistake))
    })?;
    Ok(CallRequest {
        tool,
        args,
        view: http.view(&identity, body.session_key.as_deref()),
        surface,
        session_key: body.session_key.map(|key| key.as_ref().into()),
        timeout: body.timeout_ms.map(Duration::from_millis),
        idle_timeout: body.idle_timeout_ms.map(Duration::from_millis),
        idempotency_key: key.map(|key| key.as_ref().into()),
        trace: TraceContext::continue_from(
            headers.get("traceparent").and_then(|value| value.to_str().ok()),
        ),
    })
}

/// Returns the idempotency key of the header or the body. Two different keys are an error, because
/// the caller could not know which of them protects the call.
fn idempotency_key<'a>(
    headers: &'a HeaderMap,
    in_body: Option<Cow<'a, str>>,
) -> Result<Option<Cow<'a, str>>, String> {
    let mut key = in_body;
    for value in headers.get_all(IDEMPOTENCY_KEY) {
        let value = value.to_str().map_err(|_| {
            "the header Idempotency-Key must be visible ASCII; other keys fit in the field idempotency_key"
        })?;
        if key.as_ref().is_some_and(|key| key != value) {
            return Err(
                "the header Idempotency-Key differs from another idempotency key of the request; send one key".to_owned(),
            );
        }
        key = Some(value.into());
    }
    Ok(key)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept =
        headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept
        .split(',')
        .any(|part| part.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
}

fn finished_response(finished: &Finished) -> Response {
    let mut response = match &finished.outcome {
        Ok(output) => {
            let mut response = Response::new(Body::from(done_json(finished, output)));
            response.headers_mut().insert(header::CONTENT_TYPE, JSON);
            response
        }
        Err(error) => Problem::call(error, finished.id).into_response(),
    };
    if let Ok(id) = HeaderValue::from_str(finished.id.encode(&mut [0; CallId::LEN])) {
        response.headers_mut().insert(CALL_ID, id);
    }
    response
}

pub(super) fn done_json(finished: &Finished, output: &Output) -> String {
    let blocks: Vec<WireBlock<'_>> = output.blocks.iter().map(Into::into).collect();
    let attachments = sa_http::wire_attachments(&output.attachments);
    ObjectWriter::with_capacity(128 + output.content.len())
        .text("call_id", finished.id.encode(&mut [0; CallId::LEN]))
        .plain("ok", true)
        .raw("result", &output.content)
        .maybe((!blocks.is_empty()).then_some(blocks), |object, blocks| {
            object.value("blocks", &blocks)
        })
        .maybe((!attachments.is_empty()).then_some(attachments), |object, list| {
            object.value("attachments", &list)
        })
        .plain("duration_ms", finished.duration.as_millis() as u64)
        .end()
}

#[cfg(test)]
mod tests {
    use sa_http::blocks::raw;

    use super::*;

    proptest::proptest! {
        #[test]
        fn no_body_breaks_the_reader(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), json in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,80}") {
            let _ = parse::<CallBody<'_>>(&body);
            let _ = parse::<CallBody<'_>>(json.as_bytes());
            let _ = parse::<CallBody<'_>>(format!("{{\"args\":{json}}}").as_bytes());
        }

        #[test]
        fn a_list_is_no_body(list in sa_hostile::list(&["s"])) {
            let problem = parse::<CallBody<'_>>(list.as_bytes()).unwrap_err();
            proptest::prop_assert!(problem.detail().contains("must be a JSON object"), "{}", problem.detail());
        }
    }

    #[test]
    fn an_answer_is_what_its_description_says() {
        let content = RawJson::parse(r#"{"content":[{"type":"text","text":"a"}]}"#).unwrap();
        let attachment =
            sa_core::outcome::Attachment { mime_type: "a/b".into(), name: None, data: "x".into() };
        for output in [
            sa_http::blocks::output(content.clone(), vec![attachment]),
            Output::json(RawJson::parse(" [1, 2e3]").unwrap()),
            Output::json(RawJson::null()),
        ] {
            let (id, duration) = (CallId::new(), Duration::from_millis(7));
            let described = CallDone {
                call_id: id.to_string(),
                ok: true,
                result: raw(&output.content).unwrap(),
                blocks: output.blocks.iter().map(Into::into).collect(),
                attachments: sa_http::wire_attachments(&output.attachments),
                duration_ms: 7,
            };
            let finished = Finished { id, outcome: Ok(output.clone()), duration };
            assert_eq!(done_json(&finished, &output), sa_text::json::to_json(&described));
        }
    }

    #[track_caller]
    fn check_key(headers: &[&str], in_body: Option<&str>, expected: Result<Option<&str>, &str>) {
        let mut map = HeaderMap::new();
        for value in headers {
            map.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let found = idempotency_key(&map, in_body.map(Cow::Borrowed));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn the_idempotency_key_may_be_a_header_or_a_field() {
        check_key(&[], None, Ok(None));
        check_key(&[], Some("k"), Ok(Some("k")));
        check_key(&["k"], None, Ok(Some("k")));
        check_key(&["k", "k"], Some("k"), Ok(Some("k")));
        check_key(&["k"], Some("K"), Err("differs"));
        check_key(&["k", "l"], None, Err("differs"));
        check_key(&[""], None, Ok(Some("")));
        check_key(&["ü"], None, Err("visible ASCII"));
    }

    #[test]
    fn an_argument_beside_args_is_a_mistake_with_a_hint() {
        let problem = parse::<CallBody<'_>>(br#"{"query":"x"}"#).unwrap_err();
        assert!(sa_text::json::to_json(&problem).contains("put the tool"));
    }
}
