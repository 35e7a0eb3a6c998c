//! A gateway that stops does not wait for a caller's answers.

use sa_gateway_kit::sessions::{id, session};
use sa_gateway_kit::{Setup, eventually};
use serde_json::json;

#[tokio::test]
async fn a_gateway_that_stops_does_not_wait_for_open_questions() {
    let gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    let session = session(&caller).await;
    let poll = json!({ "session_id": id(&session), "wait_ms": 300_000 });
    let next = caller.call_later("caller_tool_next", json!({ "args": poll }));
    let wait = json!({ "session_id": id(&session), "message": "more", "wait_ms": 300_000 });
    let message = caller.call_later("session_message", json!({ "args": wait }));
    eventually("both waiting", || async { (gateway.running_calls().await == 2).then_some(()) })
        .await;
    gateway.stop().await;
    assert_eq!(next.await.unwrap().result()["requests"], json!([]));
    assert_eq!(message.await.unwrap().result()["session_id"], session["session_id"]);
}
