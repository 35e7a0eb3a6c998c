//! Only its user can open a session's socket, and any input gets an answer according to JSON-RPC
//! 2.0.

use sa_testkit::sessions::{id, session};
use sa_testkit::{RelaySocket, Setup, eventually, is_private};
use serde_json::json;

#[tokio::test]
async fn a_client_that_greets_first_is_served() {
    let gateway = Setup::new().start().await;
    let session = session(&gateway.operator()).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.write("OUBLIETTE-DOWNSTREAM some-project").await;
    agent.request(0, "project_list", json!({})).await;
    assert_eq!(
        agent.recv().await,
        json!({ "jsonrpc": "2.0", "id": 0, "result": { "projects": [] } })
    );
    agent.request(1, "session_events", json!({ "since": 0 })).await;
    let events = agent.recv().await;
    assert_eq!(events["result"]["events"][1]["message"], "work");
    // A message in the agent's own session is an event; without a session it starts a new one.
    agent
        .request(2, "session_message", json!({ "session_id": id(&session), "message": "done" }))
        .await;
    assert_eq!(agent.recv().await["result"]["session_id"], session["session_id"]);
    agent.request(3, "session_message", json!({ "message": "help me" })).await;
    let child = agent.recv().await["result"].clone();
    assert_eq!(child["parent"], session["session_id"]);
}

#[tokio::test]
async fn sessions_within_sessions_end_somewhere() {
    let gateway = Setup::new().start().await;
    let mut socket = session(&gateway.operator()).await["socket"].clone();
    for _ in 0..3 {
        let mut agent = RelaySocket::connect(&socket).await;
        agent.request(1, "session_message", json!({ "message": "deeper" })).await;
        socket = agent.recv().await["result"]["socket"].clone();
    }
    let mut agent = RelaySocket::connect(&socket).await;
    agent.request(1, "session_message", json!({ "message": "deeper" })).await;
    assert_eq!(agent.recv().await["error"]["data"]["kind"], "not_allowed");
}

#[tokio::test]
async fn malformed_lines_are_answered_and_spoil_nothing() {
    let gateway = Setup::new().config("[limits]\nmax_frame_bytes = 4096").start().await;
    let session = session(&gateway.operator()).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    for (line, code, id) in [
        ("{", -32700, json!(null)),
        ("[]", -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":4}"#, -32600, json!(4)),
        (r#"{"jsonrpc":"2.0","id":5,"method":"nonsense"}"#, -32601, json!(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":"caller_tool","params":[1]}"#, -32602, json!(6)),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"caller_tool","params":{"tool":"send","arguments":{}}}"#,
            -32602,
            json!(7),
        ),
        (&format!("\"{}\"", "x".repeat(5_000)), -32600, json!(null)),
        ("\u{0}\u{1}", -32700, json!(null)),
    ] {
        agent.write(line).await;
        let answer = agent.recv().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{line:.80}: {answer}"
        );
    }
    agent.write(r#"{"jsonrpc":"2.0","method":"nonsense"}"#).await;
    agent.write(r#"[{"id":1,"method":"project_list"},{"method":"project_list"},5]"#).await;
    let batch = agent.recv().await;
    assert_eq!(
        (&batch[0]["id"], &batch[1]["error"]["code"], batch.as_array().unwrap().len()),
        (&json!(1), &json!(-32600), 2)
    );
    assert_eq!(gateway.refused("relay", "line_too_long").await, 1);
}

#[tokio::test]
async fn a_client_with_too_many_requests_is_told_so() {
    let gateway = Setup::new().start().await;
    let session = session(&gateway.operator()).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    for n in 0..65 {
        agent.caller_tool(n, "recall", json!({})).await;
    }
    let refused = agent.recv().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["data"]["kind"]),
        (&json!(64), &json!("overloaded"))
    );
}

#[tokio::test]
async fn whatever_an_agent_has_asked_for_ends_when_it_leaves() {
    let gateway = Setup::new().start().await;
    let caller = gateway.operator();
    let session = session(&caller).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    // The same id twice, no id, and several requests in a batch.
    agent.caller_tool(1, "recall", json!({})).await;
    agent.caller_tool(1, "recall", json!({})).await;
    agent.write(r#"{"method":"caller_tool","params":{"tool":"recall"}}"#).await;
    agent.write(r#"[{"id":1,"method":"caller_tool","params":{"tool":"recall"}}]"#).await;
    eventually("all to run", || async { (gateway.running_calls().await == 4).then_some(()) }).await;
    drop(agent);
    eventually("all to be gone", || async { (gateway.running_calls().await == 0).then_some(()) })
        .await;
}

#[tokio::test]
async fn the_socket_is_private() {
    let gateway = Setup::new().start().await;
    let session = session(&gateway.operator()).await;
    let path = std::path::Path::new(session["socket"].as_str().unwrap());
    assert!(is_private(path) && is_private(path.parent().unwrap()));
}

#[tokio::test]
async fn sessions_can_be_turned_off() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let operator = gateway.operator();
    operator.get("/v1/sessions").await.assert_problem(404, "not_found");
    operator
        .call("session_message", json!({ "message": "x" }))
        .await
        .assert_problem(404, "not_found");
}
