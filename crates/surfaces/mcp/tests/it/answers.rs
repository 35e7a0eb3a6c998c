//! Rule: an answer is JSON when nothing was streamed before it, and only clients of 2025-11-25
//! receive an empty first event.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::surface::{NEWER, Surface, call};

const OLDER: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];
const PRIMED: &str = "2025-11-25";
/// The default timeout of Python's HTTP clients.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a response begins that nothing was sent on.
const BEGINS: Duration = Duration::from_secs(4);

fn kind(response: &Response<Body>) -> &str {
    response.headers()["content-type"].to_str().unwrap()
}

async fn json(response: Response<Body>) -> Value {
    assert_eq!((response.status().as_u16(), kind(&response)), (200, "application/json"));
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Returns the data of a stream's events, without the keep-alive comments.
async fn data(response: Response<Body>) -> Vec<String> {
    assert_eq!((response.status().as_u16(), kind(&response)), (200, "text/event-stream"));
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let lines = std::str::from_utf8(&text).unwrap().lines();
    lines.filter_map(|line| line.strip_prefix("data:")).map(|data| data.trim().to_owned()).collect()
}

#[tokio::test]
async fn an_answer_that_nothing_was_streamed_before_is_json() {
    let surface = Surface::new();
    for revision in OLDER.into_iter().chain([PRIMED]) {
        let (session, opened) = surface.open(revision).await;
        assert_eq!(json(opened).await["result"]["protocolVersion"], revision);
        let session = [("mcp-session-id", &*session)];
        let large =
            surface.send("POST", &session, &call("text", &json!({ "bytes": 2 << 20 }))).await;
        assert_eq!(
            json(large).await["result"]["structuredContent"]["text"].as_str().unwrap().len(),
            2 << 20
        );
        let unknown = json!({ "jsonrpc": "2.0", "id": 3, "method": "nothing/such" });
        assert_eq!(
            json(surface.send("POST", &session, &unknown).await).await["error"]["code"],
            -32601
        );
    }
}

#[tokio::test]
async fn messages_before_the_answer_are_streamed_without_empty_events_for_older_clients() {
    let surface = Surface::new();
    for revision in OLDER.into_iter().chain([PRIMED]) {
        let (session, _) = surface.open(revision).await;
        let response = surface
            .send("POST", &[("mcp-session-id", &session)], &call("report", &json!({})))
            .await;
        let mut data = data(response).await;
        if revision == PRIMED {
            assert_eq!(data.remove(0), "");
        }
        let messages: Vec<Value> =
            data.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        assert_eq!(messages[0]["params"]["progress"], 1.0, "{revision}: {data:?}");
        assert_eq!(messages[1]["result"]["structuredContent"]["text"], "x", "{revision}: {data:?}");
        assert_eq!(messages.len(), 2, "{revision}: {data:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_progress_token_gets_a_stream_that_is_kept_alive() {
    let surface = Surface::new();
    for revision in [OLDER[0], PRIMED] {
        let (session, _) = surface.open(revision).await;
        let started = Instant::now();
        let response =
            surface.send("POST", &[("mcp-session-id", &session)], &call("wait", &json!({}))).await;
        assert!(started.elapsed() < READ_TIMEOUT, "{:?}", started.elapsed());
        surface.release();
        let data = data(response).await;
        assert_eq!(data.len(), 1 + usize::from(revision == PRIMED), "{revision}: {data:?}");
        assert!(data.last().unwrap().contains("structuredContent"), "{revision}: {data:?}");
    }
}

/// A call to which only its answer can be sent.
fn quiet(args: &Value) -> Value {
    let mut call = call("wait", args);
    call["params"].as_object_mut().unwrap().remove("_meta");
    call
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_gets_json_that_is_kept_alive_by_whitespace() {
    let surface = Surface::new();
    for revision in OLDER.into_iter().chain([PRIMED]) {
        let (session, _) = surface.open(revision).await;
        let started = Instant::now();
        let large = quiet(&json!({ "bytes": 2 << 20 }));
        let response = surface.send("POST", &[("mcp-session-id", &session)], &large).await;
        assert!(started.elapsed() < READ_TIMEOUT, "{:?}", started.elapsed());
        assert_eq!((response.status().as_u16(), kind(&response)), (200, "application/json"));
        let mut body = response.into_body().into_data_stream();
        for _ in 0..3 {
            let piece = tokio::time::timeout(READ_TIMEOUT, body.next()).await;
            assert_eq!(piece.unwrap().unwrap().unwrap(), " ", "{revision}");
        }
        surface.release();
        let answer: Vec<_> = body.map(|piece| piece.unwrap()).collect().await;
        let answer: Value = serde_json::from_slice(&answer.concat()).unwrap();
        let text = answer["result"]["structuredContent"]["text"].as_str().unwrap();
        assert_eq!((answer["id"].as_i64(), text.len()), (Some(2), 2 << 20), "{revision}");
    }
}

/// The client of such a call decides, and not its tool, although some tools can neither report nor
/// ask: the client can resume the stream for a call that takes long, and the tool's provider may
/// change while the call waits for it.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_message_could_precede_gets_a_stream_after_4_s_although_none_does() {
    let surface = Surface::new();
    for (capabilities, call) in [
        (json!({}), call("wait", &json!({}))),
        (json!({ "sampling": {} }), quiet(&json!({}))),
        (json!({ "elicitation": {} }), quiet(&json!({}))),
        (json!({ "roots": {} }), quiet(&json!({}))),
    ] {
        for revision in [OLDER[0], PRIMED] {
            let (session, _) = surface.open_with(revision, &capabilities).await;
            let header = [("mcp-session-id", &*session)];
            surface.release();
            assert_eq!(json(surface.send("POST", &header, &call).await).await["id"], 2);
            let started = Instant::now();
            let response = surface.send("POST", &header, &call).await;
            let waited = started.elapsed();
            assert!((BEGINS..READ_TIMEOUT).contains(&waited), "{capabilities}: {waited:?}");
            assert_eq!(kind(&response), "text/event-stream", "{capabilities} {revision}");
            if revision == PRIMED {
                resumes(&surface, &session, response).await;
            } else {
                surface.release();
                assert_eq!(data(response).await.len(), 1, "{capabilities}");
            }
        }
    }
}

/// Checks that the client of a broken stream gets the answer on another one.
async fn resumes(surface: &Surface, session: &str, response: Response<Body>) {
    let mut body = response.into_body().into_data_stream();
    let first = String::from_utf8(body.next().await.unwrap().unwrap().to_vec()).unwrap();
    let id = first.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim();
    drop(body);
    let headers = [("mcp-session-id", session), ("last-event-id", id)];
    let resumed = surface.send("GET", &headers, &Value::Null).await;
    surface.release();
    let mut body = resumed.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("structuredContent") {
        text += std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_that_fails_or_ends_with_its_session_is_an_error_in_the_json() {
    let surface = Surface::new();
    let (session, _) = surface.open(OLDER[0]).await;
    let header = [("mcp-session-id", &*session)];
    let response = surface.send("POST", &header, &quiet(&json!({ "fails": true }))).await;
    surface.release();
    let failed = json(response).await;
    assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(2), &json!(-32002)));
    let response = surface.send("POST", &header, &quiet(&json!({}))).await;
    assert_eq!(surface.send("DELETE", &header, &Value::Null).await.status(), 204);
    let ended = json(response).await;
    assert_eq!((&ended["id"], &ended["error"]["code"]), (&json!(2), &json!(-32603)));
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_cancels_a_silent_call() {
    let surface = Surface::new();
    let (session, _) = surface.open(OLDER[0]).await;
    let header = [("mcp-session-id", &*session)];
    let response = surface.send("POST", &header, &quiet(&json!({}))).await;
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), " ");
    drop(body);
    surface.abandoned().await;
}

#[tokio::test]
async fn the_stream_of_a_session_begins_with_an_empty_event_in_one_revision() {
    let surface = Surface::new();
    for (revision, begins) in [(OLDER[0], false), (OLDER[2], false), (PRIMED, true)] {
        let (session, _) = surface.open(revision).await;
        let response = surface.send("GET", &[("mcp-session-id", &session)], &Value::Null).await;
        assert_eq!(kind(&response), "text/event-stream");
        let mut body = response.into_body().into_data_stream();
        let first = tokio::time::timeout(Duration::from_millis(200), body.next()).await;
        assert_eq!(first.is_ok(), begins, "{revision}: {first:?}");
        if let Ok(Some(first)) = first {
            let first = String::from_utf8(first.unwrap().to_vec()).unwrap();
            assert!(first.contains("id: 0") && first.contains("retry: 3000"), "{first}");
        }
    }
}

#[tokio::test]
async fn a_client_that_accepts_anything_is_served() {
    let surface = Surface::new();
    for accept in
        ["", "*/*", "text/html, */*;q=0.8", "application/*, text/*", "Text/*,application/json"]
    {
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let listed = json(surface.send("POST", &[("accept", accept)], &list).await).await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 6);
        let (session, _) = surface.open(OLDER[0]).await;
        let headers = [("accept", accept), ("mcp-session-id", &*session)];
        assert_eq!(json(surface.send("POST", &headers, &list).await).await["id"], 1);
        assert_eq!(kind(&surface.send("GET", &headers, &Value::Null).await), "text/event-stream");
    }
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for accept in ["text/html", "application/*", "text/*", "ü"] {
        let refused = surface.send("POST", &[("accept", accept)], &list).await;
        assert_eq!(refused.status(), 406, "{accept}");
    }
    let discover = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWER, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
    } } });
    for accept in ["", "*/*"] {
        let headers = [
            ("accept", accept),
            ("mcp-protocol-version", NEWER),
            ("mcp-method", "server/discover"),
        ];
        assert!(json(surface.send("POST", &headers, &discover).await).await["result"].is_object());
    }
}
