//! A token that is revoked or expires stops working at once: its sockets close and its calls end.

use std::time::Duration;

use sa_gateway_kit::{Hello, Setup, eventually};
use serde_json::json;

/// The promised time limit.
const AT_ONCE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn everything_that_a_revoked_agent_has_open_ends() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (id, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let agent = gateway.agent(&token);
    let mut socket = agent.socket().await;
    let mut feed = agent.follow().await;
    socket.call("1", "a.b", json!({})).await;
    let first = node.request().await;
    let mut events = agent.stream("a.b", json!({})).await;
    let second = node.request().await;
    let rest = agent.call_later("a.b", json!({}));
    let third = node.request().await;

    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    let ends = async {
        assert_eq!(socket.closed().await.0, 4401);
        assert_eq!(events.wait_for("error").await["kind"], "cancelled");
        rest.await.unwrap().assert_problem(499, "cancelled");
        while feed.next().await.is_some() {}
        let mut cancelled = Vec::new();
        for _ in 0..3 {
            let frame = node.recv().await;
            assert_eq!(
                (&frame["type"], &frame["reason"]),
                (&json!("tool_cancel"), &json!("revoked"))
            );
            cancelled.push(frame["request_id"].as_str().unwrap().to_owned());
        }
        cancelled.sort();
        let mut expected = [first.id, second.id, third.id];
        expected.sort();
        assert_eq!(cancelled, expected);
    };
    tokio::time::timeout(AT_ONCE, ends).await.expect("it took too long");
    agent.get("/v1/tools").await.assert_problem(401, "unauthorized");
}

#[tokio::test]
async fn a_revoked_node_is_cut_off_and_its_calls_fail() {
    let gateway = Setup::new().start().await;
    let (id, token) = gateway.token(json!({ "name": "mac", "role": "node" })).await;
    let mut node = Hello::new("n").capability("a").token(&token).connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    let ends = async {
        call.await.unwrap().assert_problem(503, "offline");
        assert_eq!(node.closed().await.0, 4401);
    };
    tokio::time::timeout(AT_ONCE, ends).await.expect("it took too long");
    let refused = Hello::new("n").token(&token).greet(&gateway).await.unwrap_err();
    assert_eq!(refused.status, 401);
    assert!(refused.body["detail"].as_str().unwrap().contains("revoked"), "{}", refused.body);
}

#[tokio::test]
async fn a_token_that_runs_out_takes_its_sockets_along() {
    let gateway = Setup::new().start().await;
    let (_, token) =
        gateway.token(json!({ "name": "brief", "role": "agent", "expires_in_s": 1 })).await;
    let (_, node_token) =
        gateway.token(json!({ "name": "brief", "role": "node", "expires_in_s": 1 })).await;
    let mut node = Hello::new("n").capability("a").token(&node_token).connect(&gateway).await;
    let mut socket = gateway.agent(&token).socket().await;
    socket.call("1", "a.b", json!({})).await;
    node.request().await;
    assert_eq!(socket.closed().await.0, 4401);
    assert_eq!(node.closed().await.0, 4401);
    eventually("the calls gone", || async { (gateway.running_calls().await == 0).then_some(()) })
        .await;
    gateway.agent(&token).get("/v1/tools").await.assert_problem(401, "unauthorized");
}

#[tokio::test]
async fn a_request_that_was_on_its_way_when_its_token_was_revoked_runs_nothing() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (id, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let mut raw = sa_gateway_kit::RawHttp::connect(&gateway).await;
    raw.write(&format!(
        "POST /v1/tools/a.b/call HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-length: 11\r\n\
         connection: close\r\nexpect: 100-continue\r\n\r\n",
        gateway.address()
    ))
    .await;
    // The gateway asks for the body after checking the token.
    let mut line = [0; 25];
    sa_gateway_kit::soon(tokio::io::AsyncReadExt::read_exact(&mut raw.stream, &mut line))
        .await
        .unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    raw.write("{\"args\":{}}").await;
    let answer = raw.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    node.settle().await;
}

#[tokio::test]
async fn a_revoked_agent_that_does_not_listen_is_not_served() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (id, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let mut socket = gateway.agent(&token).socket().await;
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    // The close frame was sent but not read yet.
    for number in 0..10 {
        socket.call(&number.to_string(), "a.b", json!({})).await;
    }
    assert_eq!(socket.closed().await.0, 4401);
    node.settle().await;
}
