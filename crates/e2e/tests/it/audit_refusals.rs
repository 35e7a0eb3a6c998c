//! What is refused is in the audit trail, in bounds that no flood can break, and without the token that was tried.

use sa_testkit::{Gateway, Hello, Setup, eventually, find_in_files};
use serde_json::{Value, json};

async fn audit(gateway: &Gateway) -> Vec<Value> {
    gateway.operator().get("/v1/audit?limit=500").await.body["events"].as_array().unwrap().clone()
}

/// The events of a kind, once there are this many.
async fn refused(gateway: &Gateway, what: &str, count: usize) -> Vec<Value> {
    eventually(what, || async {
        let events: Vec<Value> = audit(gateway).await.into_iter().filter(|event| event["what"] == what).collect();
        (events.len() >= count).then_some(events)
    })
    .await
}

#[tokio::test]
async fn wrong_tokens_and_what_is_not_allowed_are_written_down() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "node-secret").start().await;
    let _node = Hello::new("n").tool("notes.read").token("node-secret").connect(&gateway).await.echo();
    let wrong = "sb_canary-of-a-token-that-nobody-has-made-0001";
    assert_eq!(gateway.agent(wrong).get("/v1/tools").await.status, 401);
    let event = refused(&gateway, "token.refused", 1).await.remove(0);
    assert_eq!((&event["who"], &event["subject"]), (&json!("127.0.0.1"), &json!("/v1/tools")), "{event}");
    assert_eq!(gateway.agent(wrong).get(&format!("/v1/calls/{wrong}")).await.status, 401);
    assert_eq!(reqwest::get(format!("{}/v1/tools", gateway.url)).await.unwrap().status(), 401);
    let nodes = reqwest::get(format!("{}/v1/nodes/ws?token={wrong}", gateway.url)).await.unwrap();
    assert!(nodes.status().is_client_error());

    let (_, token) = gateway.token(json!({ "name": "bot", "role": "agent", "tools": ["mail_*"] })).await;
    let agent = gateway.agent(&token);
    agent.call("notes_read", json!({})).await.assert_problem(403, "not_allowed");
    agent.get("/v1/tokens").await.assert_problem(403, "not_allowed");
    let call = refused(&gateway, "call.refused", 1).await;
    assert_eq!((call.len(), &call[0]["who"], &call[0]["subject"]), (1, &json!("agent bot"), &json!("notes_read")));
    let request = refused(&gateway, "request.refused", 1).await;
    assert_eq!((request.len(), &request[0]["subject"]), (1, &json!("GET /v1/tokens")), "{request:?}");
    // Who comes without a token has tried none, and an operator is refused nothing.
    let tokens = audit(&gateway).await.into_iter().filter(|event| event["what"] == "token.refused").count();
    assert!((2..=3).contains(&tokens), "{tokens}");
    let dir = std::sync::Arc::clone(&gateway.dir);
    gateway.stop().await;
    assert_eq!(find_in_files(dir.path(), wrong), Vec::<std::path::PathBuf>::new(), "the token is nowhere");
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
    // A minute may begin anew in the middle of it.
    assert!((10..=20).contains(&rows), "{rows}");
    assert!(more[0]["detail"].as_str().unwrap().starts_with("and "), "{more:?}");
    assert_eq!(gateway.refused("http", "token").await, 100, "they are all counted");
    gateway.stop().await;
}
