//! Refusals are in the audit trail, within limits that a flood cannot exceed, and without the token
//! that was tried.

use sa_gateway_kit::{Gateway, Hello, Setup, eventually, find_in_files};
use serde_json::{Value, json};

async fn audit(gateway: &Gateway) -> Vec<Value> {
    gateway.operator().get("/v1/audit?limit=500").await.body["events"].as_array().unwrap().clone()
}

/// Returns the events of one kind, once there are this many.
async fn refused(gateway: &Gateway, what: &str, count: usize) -> Vec<Value> {
    eventually(what, || async {
        let events: Vec<Value> =
            audit(gateway).await.into_iter().filter(|event| event["what"] == what).collect();
        (events.len() >= count).then_some(events)
    })
    .await
}

#[tokio::test]
async fn wrong_tokens_and_what_is_not_allowed_are_written_down() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "node-secret").start().await;
    let _node =
        Hello::new("n").tool("notes.read").token("node-secret").connect(&gateway).await.echo();
    let wrong = "sb_canary-of-a-token-that-nobody-has-made-0001";
    assert_eq!(gateway.agent(wrong).get("/v1/tools").await.status, 401);
    let event = refused(&gateway, "token.refused", 1).await.remove(0);
    assert_eq!(
        (&event["who"], &event["subject"]),
        (&json!("127.0.0.1"), &json!("/v1/tools")),
        "{event}"
    );
    assert_eq!(gateway.agent(wrong).get(&format!("/v1/calls/{wrong}")).await.status, 401);
    assert_eq!(reqwest::get(format!("{}/v1/tools", gateway.url)).await.unwrap().status(), 401);
    for token in [format!("?token={wrong}"), String::new()] {
        let node = reqwest::Client::new().get(format!("{}/v1/nodes/ws{token}", gateway.url));
        let node = node.header("connection", "upgrade").header("upgrade", "websocket");
        let node = node
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
        assert_eq!(node.send().await.unwrap().status(), 401);
    }

    let (_, token) =
        gateway.token(json!({ "name": "bot", "role": "agent", "tools": ["mail_*"] })).await;
    let agent = gateway.agent(&token);
    // The caller cannot distinguish it from a tool that does not exist, but the operator can.
    agent.call("notes_read", json!({})).await.assert_problem(404, "not_found");
    agent.call("notes_reed", json!({})).await.assert_problem(404, "not_found");
    agent.get("/v1/tokens").await.assert_problem(403, "not_allowed");
    let call = refused(&gateway, "call.refused", 1).await;
    assert_eq!(
        (call.len(), &call[0]["who"], &call[0]["subject"]),
        (1, &json!("agent bot"), &json!("notes_read"))
    );
    let request = refused(&gateway, "request.refused", 1).await;
    assert_eq!(
        (request.len(), &request[0]["subject"]),
        (1, &json!("GET /v1/tokens")),
        "{request:?}"
    );
    // A request without a token has tried none, and an operator is never refused.
    let tokens =
        audit(&gateway).await.into_iter().filter(|event| event["what"] == "token.refused").count();
    assert_eq!(tokens, 3);
    let dir = std::sync::Arc::clone(&gateway.dir);
    gateway.stop().await;
    assert_eq!(
        find_in_files(dir.path(), wrong),
        Vec::<std::path::PathBuf>::new(),
        "the token is nowhere"
    );
}

#[tokio::test]
async fn a_token_of_another_role_is_written_down_as_that() {
    let gateway = Setup::new().start().await;
    let refusal = Hello::new("n").token(&gateway.operator).greet(&gateway).await.unwrap_err();
    assert_eq!(
        (refusal.status, &refusal.body["kind"]),
        (401, &json!("unauthorized")),
        "{refusal:?}"
    );
    let event = refused(&gateway, "token.refused", 1).await.remove(0);
    assert_eq!(event["detail"], refusal.body["detail"], "{event}");
    assert!(event["detail"].as_str().unwrap().contains("role is operator"), "{event}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_flood_is_a_few_rows_and_a_number() {
    let gateway = Setup::new().start().await;
    let stranger = gateway.agent("sb_wrong");
    for _ in 0..100 {
        assert_eq!(stranger.get("/v1/tools").await.status, 401);
    }
    let more = refused(&gateway, "refused.more", 1).await;
    let rows = refused(&gateway, "token.refused", 1).await.len();
    // The rate limit's minute may restart in the middle of the test.
    assert!((10..=20).contains(&rows), "{rows}");
    assert!(more[0]["detail"].as_str().unwrap().starts_with("and "), "{more:?}");
    assert_eq!(gateway.refused("http", "token").await, 100, "they are all counted");
    gateway.stop().await;
}

#[tokio::test]
async fn whoever_does_not_get_in_is_written_down() {
    let gateway = Setup::new().start().await;
    let sign_in = format!("{}/v1/console/sign-in", gateway.url);
    let http = reqwest::Client::new();
    let code = "canary-of-a-code-that-nobody-was-given";
    assert_eq!(
        http.post(&sign_in).json(&json!({ "code": code })).send().await.unwrap().status(),
        401
    );
    assert_eq!(http.post(&sign_in).bearer_auth("sb_wrong").send().await.unwrap().status(), 401);
    let (_, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    assert_eq!(http.post(&sign_in).bearer_auth(&token).send().await.unwrap().status(), 403);
    // A request without credentials has tried none.
    assert_eq!(http.post(&sign_in).send().await.unwrap().status(), 401);
    let events = refused(&gateway, "console.sign_in_refused", 3).await;
    let subjects: Vec<&str> =
        events.iter().map(|event| event["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["agent bot", "token", "sign-in link"], "newest first: {events:?}");
    assert!(events.iter().all(|event| event["who"] == "127.0.0.1"), "{events:?}");
    assert!(!format!("{:?}", audit(&gateway).await).contains("canary"), "the code is not in it");

    let back = format!("{}/v1/upstream/mail/callback?state=guessed&code=canary", gateway.url);
    for _ in 0..100 {
        assert_eq!(http.get(&back).send().await.unwrap().status(), 400);
    }
    refused(&gateway, "refused.more", 1).await;
    let events = refused(&gateway, "upstream.login_failed", 1).await;
    assert!(events.len() <= 20, "{}", events.len());
    assert_eq!(
        (&events[0]["who"], &events[0]["subject"]),
        (&json!("browser from 127.0.0.1"), &json!("mail"))
    );
    assert!(!format!("{:?}", audit(&gateway).await).contains("canary"), "nor is that code");
    gateway.stop().await;
}

#[tokio::test]
async fn nodes_that_claim_another_ones_id_fill_nothing() {
    let gateway = Setup::new().env("SA_NODE_TOKENS", "one:t1,two:t2").start().await;
    for _ in 0..40 {
        let mut impostor =
            Hello::new("one").capability("a").token("t2").greet(&gateway).await.unwrap();
        assert_eq!(impostor.closed().await.0, 4409);
    }
    let more = refused(&gateway, "refused.more", 1).await;
    let rows = refused(&gateway, "node.impostor", 1).await.len();
    // The rate limit's minute may restart in the middle of the test.
    assert!((10..=20).contains(&rows), "{rows}: {more:?}");
    gateway.stop().await;
}
