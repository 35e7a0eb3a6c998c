//! The received parts of large bodies share one budget for all requests, on every route.

use reqwest::Method;
use sa_gateway_kit::{Gateway, Hello, RawHttp, Setup, eventually, soon};
use serde_json::json;

use crate::SWITCHBOARD;

/// A budget for three bodies that have arrived as far as [`begin`] sends them.
const ROOM: &str = "[limits]\nrequest_bytes = 1_000_000";
/// The spaces before the content of a body.
const BLANKS: usize = 300_000;
const BODY: &str = r#"{"args":{"x":1}}"#;

/// Sends a call without the end of its body.
async fn begin(gateway: &Gateway) -> RawHttp {
    let mut raw = RawHttp::connect(gateway).await;
    let token = std::fs::read_to_string(gateway.data_dir().join("operator.token")).unwrap();
    let (address, token, length) = (gateway.address(), token.trim(), BLANKS + BODY.len());
    raw.write(&format!(
        "POST /v1/tools/a.b/call HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{}",
        " ".repeat(BLANKS)
    ))
    .await;
    raw
}

#[tokio::test]
async fn who_finds_no_room_for_a_large_body_is_sent_away_alone() {
    let gateway = Setup::new().config(ROOM).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let answers = tokio::spawn(async move {
        loop {
            let request = node.request().await;
            node.answer(&request.id, json!("answered")).await;
        }
    });
    let mut begun = Vec::new();
    for _ in 0..3 {
        begun.push(begin(&gateway).await);
    }
    let mut refused = 0;
    for path in [
        "/v1/tools/a.b/call",
        "/v1/tools/invoke",
        "/mcp",
        "/v1/chat/completions",
        "/api/gateway",
        "/v1/eligibility",
    ] {
        // The other bodies may not have arrived completely yet. A client that is still sending may
        // miss the answer.
        let reply = eventually("no room", || async {
            let body = format!("{}{BODY}", " ".repeat(BLANKS));
            let reply = gateway.operator().request(Method::POST, path).body(body).send().await.ok();
            reply.filter(|reply| reply.status() == 429)
        })
        .await;
        refused += 1;
        assert_eq!(reply.headers()["retry-after"], "1", "{path}");
        let told = soon(reply.text()).await.unwrap();
        assert!(told.contains("bytes of large requests"), "{path}: {told}");
        let small = gateway.operator().call("a.b", json!({})).await;
        assert_eq!(small.result(), "answered", "what is small needs no room");
    }
    assert!(gateway.refused("http", "no_room").await >= refused);
    // The first requests have a budget for the rest, and release it afterwards.
    for mut raw in begun {
        raw.write(BODY).await;
        let answer = raw.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("answered"), "{answer}");
    }
    let large = gateway.operator().call("a.b", json!("x".repeat(900_000))).await;
    assert_eq!(large.result(), "answered");
    answers.abort();
    gateway.stop().await;
}
