//! A refused request to the plugin gateway gets an error in the format of its protocol.

use reqwest::Method;
use sa_gateway_kit::plugins::payload;
use sa_gateway_kit::{Reply, Setup};
use serde_json::{Value, json};

#[track_caller]
fn check(reply: &Reply, status: u16, error_type: Value, words: &[&str]) {
    assert_eq!((reply.status, &reply.body["errorType"]), (status, &error_type), "{}", reply.text);
    assert!(
        reply.body.get("body").is_some()
            && reply.headers["content-type"].to_str().unwrap().contains("json")
    );
    for word in words {
        assert!(reply.body["body"].to_string().contains(word), "{} should say {word}", reply.text);
    }
}

#[tokio::test]
async fn whoever_is_not_let_in_is_told_in_the_same_form() {
    let at = Setup::new().start().await;
    let (id, token) = at.token(json!({ "name": "gone", "role": "agent" })).await;
    at.operator().delete(&format!("/v1/tokens/{id}")).await;
    for path in sa_protocol::plugin::GATEWAY_PATHS {
        for token in ["", "no such token", token.as_str()] {
            let reply = Reply::of(
                at.agent(token).request(Method::POST, path).json(&payload("w", json!({}))),
            )
            .await;
            check(&reply, 401, json!(401), &["message", "hint"]);
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
        }
        let page =
            at.operator().request(Method::POST, path).header("origin", "https://evil.example");
        check(
            &Reply::of(page.json(&payload("w", json!({})))).await,
            403,
            json!(403),
            &["plugins.allowed_origins"],
        );
        let twice =
            at.operator().request(Method::POST, path).header("authorization", "Bearer another");
        check(
            &Reply::of(twice.json(&payload("w", json!({})))).await,
            400,
            json!(400),
            &["Authorization"],
        );
    }
    // All other routes return a regular problem.
    at.agent("no such token").get("/v1/tools").await.assert_problem(401, "unauthorized");
}
