//! Rules for callers: how a request is named, when its answer counts, and when it fails.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::{Kit, SOON, principal};

/// Returns the id of the request that waits for the caller.
async fn request(kit: &Kit, owner: &Arc<sa_core::Principal>, session: &str) -> String {
    let asked = json!({ "session_id": session, "wait_ms": 10_000 });
    let next = kit.call(owner, "caller_tool_next", asked).await.unwrap();
    next["requests"][0]["request_id"].as_str().unwrap().to_owned()
}

#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_answer_to_an_unknown_request_is_logged_and_reported_to_its_sender() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let (session, mut agent) = kit.session(&owner).await;
    agent.ask("caller_tool", json!({ "tool": "send", "arguments": {} })).await;
    let id = request(&kit, &owner, &session).await;
    assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 4, "{id}");
    let respond = async |name: &str, session: &str, request: &str| -> Value {
        let answer = json!({ "session_id": session, "request_id": request, "result": 7 });
        kit.call(&principal(name), "caller_tool_response", answer).await.unwrap()
    };
    let (taken, late) =
        (json!({ "received": true }), json!({ "received": true, "counted": false }));
    assert_eq!(respond("other", &session, &id).await, taken);
    assert_eq!(respond("owner", &session, "nonsense").await, late);
    assert_eq!(respond("owner", &session, &id).await, taken);
    assert_eq!(agent.answer().await["result"], 7);
    assert_eq!(respond("owner", &session, &id).await, late);
    kit.call(&owner, "session_end", json!({ "session_id": session })).await.unwrap();
    assert_eq!(respond("owner", &session, &id).await, late);
    assert_eq!(respond("other", &session, &id).await, taken);
    assert_eq!(respond("owner", "ses_none", &id).await, taken);
    let logged = String::from_utf8(logged.0.lock().clone()).unwrap();
    let warned = |request: &str| {
        logged.lines().any(|line| {
            line.contains("WARN") && line.contains("unknown request_id") && line.contains(request)
        })
    };
    assert!(warned("nonsense") && warned(&id), "{logged}");
}

#[tokio::test]
async fn warnings_about_unknown_requests_are_limited() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let kit = Kit::new("").await;
    for _ in 0..100 {
        let answer = json!({ "session_id": "ses_none", "request_id": "none", "result": 7 });
        kit.call(&principal("other"), "caller_tool_response", answer).await.unwrap();
    }
    let logged = String::from_utf8(logged.0.lock().clone()).unwrap();
    let warned = logged.lines().filter(|line| line.contains("unknown request_id")).count();
    assert!((1..=40).contains(&warned), "{warned}");
}

#[tokio::test]
async fn progress_restarts_the_idle_timeout_of_a_call_on_the_socket() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let (session, mut agent) = kit.session(&owner).await;
    let ask = |idle: u64| json!({ "tool": "send", "idle_timeout_ms": idle });
    agent.ask("caller_tool", ask(1_000)).await;
    let id = request(&kit, &owner, &session).await;
    let respond = async |key: &str, value: Value| {
        let answer = json!({ "session_id": session, "request_id": id, key: value });
        kit.call(&owner, "caller_tool_response", answer).await.unwrap();
    };
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_500) {
        respond("progress", json!(0.5)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    respond("result", json!(7)).await;
    assert_eq!(agent.answer().await["result"], 7);
    agent.ask("caller_tool", ask(50)).await;
    let answer = agent.answer().await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    agent.ask("caller_tool", ask(0)).await;
    assert_eq!(agent.answer().await["error"]["data"]["kind"], "invalid_args");
}

#[tokio::test]
async fn requests_fail_immediately_when_the_last_stream_of_their_caller_closes() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let (session, mut agent) = kit.session(&owner).await;
    let mut stream = kit.sessions.follow(&owner, &session, None, false).await.unwrap();
    agent.ask("caller_tool", json!({ "tool": "send" })).await;
    let items = tokio::time::timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(items[0], sa_relay::SessionItem::Request(_)), "{items:?}");
    let closed = Instant::now();
    drop(stream);
    let answer = agent.answer().await;
    assert_eq!(answer["error"]["data"]["kind"], "offline", "{answer}");
    assert!(closed.elapsed() < Duration::from_secs(2), "{:?}", closed.elapsed());
    // A polling caller is present between two polls.
    let poll = json!({ "session_id": session, "wait_ms": 1 });
    kit.call(&owner, "caller_tool_next", poll).await.unwrap();
    agent.ask("caller_tool", json!({ "tool": "send" })).await;
    let id = request(&kit, &owner, &session).await;
    let answer = json!({ "session_id": session, "request_id": id, "result": 7 });
    kit.call(&owner, "caller_tool_response", answer).await.unwrap();
    assert_eq!(agent.answer().await["result"], 7);
}

#[tokio::test]
async fn requests_fail_at_once_also_if_the_stream_was_open_before_the_message() {
    for wait_ms in [0, 50] {
        let kit = Kit::new("").await;
        let owner = principal("owner");
        let stream = kit.notices.add_reader(&owner.id);
        let (session, mut agent) = kit.session(&owner).await;
        let message = json!({ "session_id": session, "message": "work", "wait_ms": wait_ms });
        kit.call(&owner, "session_message", message).await.unwrap();
        let poll = json!({ "session_id": session, "wait_ms": 1 });
        kit.call(&owner, "caller_tool_next", poll).await.unwrap();
        agent.ask("caller_tool", json!({ "tool": "send" })).await;
        pending(&kit, &owner, &session).await;
        let closed = Instant::now();
        drop(stream);
        let answer = agent.answer().await;
        assert_eq!(answer["error"]["data"]["kind"], "offline", "{answer}");
        assert!(closed.elapsed() < Duration::from_secs(2), "{:?}", closed.elapsed());
    }
}

/// Waits until a request to the caller is open, without counting as its presence.
async fn pending(kit: &Kit, owner: &Arc<sa_core::Principal>, session: &str) {
    let open = async {
        while kit.sessions.show(owner, session).await.unwrap().pending == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, open).await.unwrap();
}

#[tokio::test]
async fn a_timeout_names_the_caller() {
    let kit = Kit::new("").await;
    let (_, mut agent) = kit.session(&principal("owner")).await;
    agent.ask("caller_tool", json!({ "tool": "send", "timeout_ms": 50 })).await;
    let answer = agent.answer().await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("\"ant\""), "{answer}");
}

#[tokio::test]
async fn a_timeout_names_the_caller_on_every_surface() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let (session, _agent) = kit.session(&owner).await;
    let timeout = Duration::from_millis(50);
    let error = kit.call_within(&owner, &session, "ant_send", timeout).await.unwrap_err();
    assert_eq!(error.kind, sa_core::CallErrorKind::Timeout, "{error:?}");
    assert!(error.message.contains("the caller \"ant\""), "{error:?}");
    assert!(!error.message.contains(&session), "{error:?}");
}

#[tokio::test]
async fn progress_does_not_extend_a_limit_that_the_caller_set() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let tool = |timeout: Value| json!({ "name": "send", "inputSchema": { "type": "object" }, "timeout_ms": timeout });
    for (own, session, is_hard) in [
        (json!(1_000), Value::Null, true),
        (Value::Null, json!(1_000), true),
        (Value::Null, Value::Null, false),
    ] {
        let context = json!({ "caller_id": "ant", "caller_tools": [tool(own)] });
        let args = json!({ "context": context, "timeout_ms": session });
        let opened = kit.call(&owner, "session_message", args).await.unwrap();
        let id = opened["session_id"].as_str().unwrap();
        let mut agent = crate::kit::Agent::connect(opened["socket"].as_str().unwrap()).await;
        agent.ask("caller_tool", json!({ "tool": "send" })).await;
        let request = request(&kit, &owner, id).await;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_500) {
            let progress = json!({ "session_id": id, "request_id": request, "progress": 0.5 });
            kit.call(&owner, "caller_tool_response", progress).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let answer = json!({ "session_id": id, "request_id": request, "result": 7 });
        kit.call(&owner, "caller_tool_response", answer).await.unwrap();
        let answer = agent.answer().await;
        assert_eq!(answer["error"]["data"]["kind"] == "timeout", is_hard, "{answer}");
    }
}

#[tokio::test]
async fn the_input_schema_of_a_tool_has_the_type_object() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    for (schema, fits) in [
        (json!({ "type": "object" }), true),
        (Value::Null, true),
        (json!({}), false),
        (json!({ "type": "array" }), false),
        (json!({ "type": ["object"] }), false),
    ] {
        let args = json!({ "caller_tools": [{ "name": "send", "inputSchema": schema }] });
        match kit.call(&owner, "session_message", args).await {
            Ok(_) => assert!(fits, "{schema}"),
            Err(error) => {
                assert!(!fits && error.message.contains("\"send\""), "{schema}: {}", error.message);
            }
        }
    }
}
