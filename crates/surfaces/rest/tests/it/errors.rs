//! Every kind of failure has its status, a one-sentence explanation, and the call id.

use sa_testkit::{Hello, Setup};
use serde_json::json;

#[tokio::test]
async fn what_a_node_reports_reaches_the_caller() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    for (kind, status) in [
        ("invalid_args", 422),
        ("not_allowed", 403),
        ("not_found", 404),
        ("timeout", 504),
        ("cancelled", 499),
        ("failed", 502),
    ] {
        let call = gateway.operator().call_later("a.b", json!({}));
        let request = node.request().await;
        node.fail(&request.id, kind, &format!("because of {kind}")).await;
        let reply = call.await.unwrap();
        reply.assert_problem(status, kind);
        assert_eq!(reply.detail(), format!("because of {kind}"));
        assert_eq!(reply.body["call_id"], reply.headers["x-call-id"].to_str().unwrap());
    }
}

#[tokio::test]
async fn what_the_gateway_finds_itself() {
    let gateway = Setup::new().config("[policy]\ndeny = [\"a.secret\"]").start().await;
    let schema = json!({ "type": "object", "properties": { "query": { "type": "string" } }, "required": ["query"] });
    let mut node = Hello::new("n")
        .capability("a")
        .describe(json!({ "name": "a.search", "input_schema": schema }))
        .connect(&gateway)
        .await;
    let operator = gateway.operator();

    let reply = operator.call("a_search", json!({})).await;
    reply.assert_problem(422, "invalid_args");
    assert!(reply.detail().contains("query"), "a mistake is named: {}", reply.text);
    assert_eq!(reply.body["retryable"], false);

    operator.call("a.secret", json!({})).await.assert_problem(403, "not_allowed");

    let reply = operator.call("x_search", json!({})).await;
    reply.assert_problem(404, "not_found");
    assert!(reply.body["hint"].is_string());
    assert!(reply.body["call_id"].is_string());

    let reply =
        operator.call_with("a_search", json!({ "args": { "query": "x" }, "timeout_ms": 50 })).await;
    reply.assert_problem(504, "timeout");
    assert_eq!(reply.body["retryable"], true);
    assert!(reply.detail().contains("50 ms"), "{}", reply.text);
    let request = node.request().await;
    assert_eq!(node.cancelled(&request).await, "deadline");
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_not_to_be_retried_after_a_timeout() {
    let gateway = Setup::new().start().await;
    let tool = |name: &str, again: bool| json!({ "name": name, "annotations": { "idempotentHint": again } });
    let hello = Hello::new("n").describe(tool("a.once", false)).describe(tool("a.often", true));
    let mut node = hello.connect(&gateway).await;
    for (name, again) in [("a_once", false), ("a_often", true)] {
        let reply =
            gateway.operator().call_with(name, json!({ "args": {}, "timeout_ms": 50 })).await;
        reply.assert_problem(504, "timeout");
        assert_eq!(reply.body["retryable"], again, "{name} ran out of the call's time");
        let request = node.request().await;
        node.cancelled(&request).await;
        let call = gateway.operator().call_later(name, json!({}));
        let request = node.request().await;
        node.fail(&request.id, "timeout", "it took too long").await;
        let reply = call.await.unwrap();
        assert_eq!(
            reply.assert_problem(504, "timeout").body["retryable"],
            again,
            "{name} ran out of the tool's time"
        );
    }
}

#[tokio::test]
async fn a_retry_with_other_arguments_is_a_conflict() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let body = |x: u32| json!({ "args": { "x": x }, "idempotency_key": "k" });
    assert_eq!(operator.call_with("a.b", body(1)).await.result(), json!({ "x": 1 }));
    operator.call_with("a.b", body(2)).await.assert_problem(409, "conflict");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_the_callers_mistake() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    for body in [
        "",
        "nonsense",
        "[]",
        "{\"args\":",
        "{\"args\":{},\"args\":{}}",
        "{\"arg\":{}}",
        "{\"timeout_ms\":0}",
    ] {
        let request = operator.request(reqwest::Method::POST, "/v1/tools/a.b/call").body(body);
        let reply = sa_testkit::Reply::of(request).await;
        // An empty body is a call without arguments; the tool does not exist.
        let (status, kind) =
            if body.is_empty() { (404, "not_found") } else { (400, "bad_request") };
        reply.assert_problem(status, kind);
    }
}
