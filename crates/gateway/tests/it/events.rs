//! With `Accept: text/event-stream` a call is a stream: progress and chunks in order, then one
//! `done` or `error`.

use sa_gateway_kit::{Hello, Setup};
use serde_json::{Value, json};

#[tokio::test]
async fn updates_come_in_order_and_the_result_last() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut events = gateway.operator().stream("a.b", json!({ "args": {} })).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    let request = node.request().await;
    node.send(json!({
        "type": "tool_progress", "request_id": request.id, "progress": 1, "total": 3, "message": "one",
    }))
    .await;
    node.chunk(&request.id, json!("first\nline")).await;
    node.progress(&request.id, 2.0).await;
    node.answer(&request.id, json!(7)).await;

    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["progress", "chunk", "progress", "done"]);
    assert_eq!(seen[0].1, json!({ "progress": 1.0, "total": 3.0, "message": "one" }));
    assert_eq!(seen[1].1, json!({ "content": "first\nline" }));
    assert_eq!(seen[2].1, json!({ "progress": 2.0 }));
    assert_eq!((&seen[3].1["ok"], &seen[3].1["result"]), (&json!(true), &json!(7)));
    assert_eq!(seen[3].1["call_id"], events.call_id());
}

#[tokio::test]
async fn a_failure_is_an_event_with_the_same_members_as_a_problem() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    let request = node.request().await;
    node.fail(&request.id, "not_allowed", "no").await;
    let (name, data) = events.next().await.unwrap();
    assert_eq!(
        (name.as_str(), &data["kind"], &data["status"]),
        ("error", &json!("not_allowed"), &json!(403))
    );
    assert_eq!((&data["detail"], &data["call_id"]), (&json!("no"), &json!(events.call_id())));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn delete_cancels_a_running_call_and_not_an_ended_one() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let mut events = operator.stream("a.b", json!({})).await;
    let request = node.request().await;
    let path = format!("/v1/calls/{}", events.call_id());
    let running = operator.get(&path).await.body;
    assert_eq!((&running["state"], &running["tool"]), (&json!("running"), &json!("a.b")));

    let reply = operator.delete(&path).await;
    assert_eq!((reply.status, &reply.body["cancelled"]), (200, &json!(true)));
    assert_eq!(node.cancelled(&request).await, "requested");
    assert_eq!(events.wait_for("error").await["kind"], "cancelled");

    operator.delete(&path).await.assert_problem(409, "conflict");
    let ended = sa_gateway_kit::eventually("the record", || async {
        Some(operator.get(&path).await.body).filter(|call| call["state"] == "ended")
    })
    .await;
    assert_eq!((&ended["ok"], &ended["error"]["kind"]), (&Value::Bool(false), &json!("cancelled")));
}

#[tokio::test]
async fn a_running_call_is_shown_as_an_ended_one_secrets_masked() {
    let gateway = Setup::new().config("[journal]\npayload_bytes = 100").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let args = json!({ "city": "Oslo", "api_key": "canary" });
    let mut events = operator.stream("a.b", json!({ "args": args })).await;
    let request = node.request().await;
    assert_eq!(request.args, args, "the node gets them as they are");
    node.progress(&request.id, 1.0).await;
    events.wait_for("progress").await;
    let path = format!("/v1/calls/{}", events.call_id());
    let alone = operator.get(&path).await;
    let listed = operator.get("/v1/calls?state=running").await;
    assert!(!alone.text.contains("canary") && !listed.text.contains("canary"), "{}", alone.text);
    for call in [&alone.body, &listed.body["calls"][0]] {
        assert_eq!(call["args"]["json"], json!({ "city": "Oslo", "api_key": "***" }), "{call}");
        assert_eq!(call["args"]["bytes"], args.to_string().len());
        assert_eq!(call["provider"], json!({ "kind": "node", "id": "n" }));
        assert_eq!(
            (call["updates"].as_u64(), call["principal"]["role"].as_str()),
            (Some(1), Some("operator"))
        );
        assert!(
            call["waited_us"].as_u64().unwrap() <= call["duration_us"].as_u64().unwrap(),
            "{call}"
        );
    }
    // The arguments of another principal's call are as hidden as the call.
    let other = gateway.new_agent("other").await;
    other.get(&path).await.assert_problem(404, "not_found");
    assert_eq!(other.get("/v1/calls?state=running").await.body["calls"], json!([]));

    let large = operator.stream("a.b", json!({ "args": { "text": "x".repeat(200) } })).await;
    node.request().await;
    let shown = operator.get(&format!("/v1/calls/{}", large.call_id())).await.body;
    assert_eq!(
        (shown["args"]["bytes"].as_u64(), &shown["args"]["json"]),
        (Some(211), &Value::Null)
    );
}

#[tokio::test]
async fn the_socket_for_calls_says_the_same() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.b", json!({ "x": 1 })).await;
    let request = node.request().await;
    node.progress(&request.id, 1.0).await;
    node.chunk(&request.id, json!([1])).await;
    node.answer(&request.id, json!("ok")).await;
    assert_eq!(socket.recv().await, json!({ "type": "progress", "id": "1", "progress": 1 }));
    assert_eq!(socket.recv().await, json!({ "type": "chunk", "id": "1", "content": [1] }));
    let done = socket.recv().await;
    assert_eq!(
        (&done["type"], &done["id"], &done["result"]),
        (&json!("done"), &json!("1"), &json!("ok"))
    );
    assert!(done["call_id"].is_string() && done["duration_ms"].is_u64());

    socket.call("2", "nothing", json!({})).await;
    let error = socket.recv().await;
    assert_eq!(
        (&error["type"], &error["id"], &error["kind"]),
        (&json!("error"), &json!("2"), &json!("not_found"))
    );
}
