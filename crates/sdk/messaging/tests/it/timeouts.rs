//! Rule: progress restarts the timeout that a method advertises, and the caller's idle timeout. It
//! does not extend the caller's timeout.

use std::time::Duration;

use futures_util::StreamExt as _;
use sa_messaging::CallOptions;
use serde_json::{Value, json};

use crate::kit::{Connection, message, server, soon};

const STEP: Duration = Duration::from_millis(300);

/// Stops the clock, also while all tasks wait for a socket, until the returned guard is dropped.
fn stop_clock() -> std::sync::mpsc::Sender<()> {
    tokio::time::pause();
    // A paused clock moves on when all tasks wait, except while a blocking task runs.
    let (guard, dropped) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || dropped.recv());
    guard
}

#[tokio::test]
async fn progress_extends_only_what_the_caller_did_not_set() {
    let (listener, builder) = server().await;
    let connecting = tokio::spawn(builder.connect());
    let mut server = Connection::accept(&listener).await;
    let methods = json!([{ "name": "short", "timeout": 400 }, { "name": "plain" }]);
    let worker = json!({ "action": "join", "metadata": { "methods": methods } });
    server.send(json!({ "kind": "replay", "type": "presence", "senderId": "worker", "ts": 1, "payload": worker })).await;
    // A tool of the gateway.
    let tools = json!([{ "name": "tool", "timeout": 200 }]);
    let gateway = json!({ "action": "join", "metadata": { "methods": tools } });
    server.send(json!({ "kind": "replay", "type": "presence", "senderId": "switchboard", "ts": 1, "payload": gateway })).await;
    server.ready(1).await;
    let client = soon(connecting).await.unwrap().unwrap();

    let _stopped = stop_clock();
    let (ms, options) = (Duration::from_millis, CallOptions::new);
    let mut id = 1;
    // Each method reports progress every 300 ms, and ends after the third report.
    for (method, options, reports) in [
        ("short", options(), 3),
        ("tool", options(), 0),
        ("plain", options().idle_timeout(ms(400)), 3),
        ("short", options().timeout(ms(1_000)), 3),
        ("short", options().timeout(ms(400)), 1),
        ("plain", options().timeout(ms(400)).idle_timeout(ms(1_000)), 1),
        ("plain", options().timeout(ms(1_000)).idle_timeout(ms(200)), 0),
    ] {
        let case = format!("{method} {options:?}");
        let provider = if method == "tool" { "switchboard" } else { "worker" };
        let call = client.call_method(provider, method, json!({}), options);
        let call_id = server.recv().await["payload"]["callId"].clone();
        let mut result = async |mut payload: Value| {
            payload["callId"] = call_id.clone();
            id += 1;
            let mut result = message("persisted", id, "method-result", payload);
            result["senderId"] = json!("worker");
            server.send(result).await;
        };
        let mut parts = call.stream();
        for report in 1..=reports {
            tokio::time::advance(STEP).await;
            result(json!({ "progress": 20 * report })).await;
            assert!(parts.next().await.is_some(), "{case}");
        }
        if reports == 3 {
            result(json!({ "content": "done", "complete": true })).await;
            assert_eq!(call.result().await.unwrap().content, "done", "{case}");
        } else {
            tokio::time::advance(STEP).await;
            assert_eq!(call.result().await.unwrap_err().code(), "timeout", "{case}");
            assert_eq!(server.recv().await["type"], "method-cancel", "{case}");
        }
    }
}
