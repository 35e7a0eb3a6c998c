//! A node may connect with the shared token, a token bound to its id, or a node token. If no node
//! token exists, local nodes may connect without one. All others get a 401 at the upgrade, before
//! any frame.

use sa_testkit::{FakeNode, Gateway, Hello, Setup};
use serde_json::json;

async fn refused(gateway: &Gateway, query: &str) {
    let refused = FakeNode::upgrade(gateway, query).await.expect_err(query);
    assert_eq!(
        (refused.status, &refused.body["kind"]),
        (401, &json!("unauthorized")),
        "{query}: {}",
        refused.body
    );
    assert!(refused.body["hint"].is_string());
}

#[tokio::test]
async fn the_shared_token() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "s3cret").start().await;
    for query in
        ["", "token=", "token=wrong", "token=S3cret", "token=s3cret2", "node_id=n", "tokens=s3cret"]
    {
        refused(&gateway, query).await;
    }
    refused(&gateway, &format!("token={}", gateway.operator)).await;
    assert_eq!(gateway.refused("node", "token").await, 8);
    Hello::new("n").token("s3cret").connect(&gateway).await;
    // Some nodes leave the id out of the query, and some put it first.
    Hello::new("m").query("token=s3cret").connect(&gateway).await;
    Hello::new("o").query("node_id=o&token=s3cret").connect(&gateway).await;
    // A token in the header never appears in a log.
    let mut node =
        FakeNode::upgrade_with(&gateway, "", &[("authorization", "Bearer s3cret")]).await.unwrap();
    node.send(Hello::new("p").frame()).await;
    assert_eq!(node.recv().await["type"], "gateway_welcome");
}

#[tokio::test]
async fn tokens_bound_to_an_id() {
    let gateway = Setup::new().env("SA_NODE_TOKENS", "linux:laptop:t1, two:t2").start().await;
    Hello::new("linux:laptop").token("t1").connect(&gateway).await;
    Hello::new("two").token("t2").connect(&gateway).await;
    let mut other = Hello::new("two").token("t1").greet(&gateway).await.unwrap();
    assert_eq!(other.closed().await.0, 4409);
    refused(&gateway, "token=t3").await;
    refused(&gateway, "").await;
}

#[tokio::test]
async fn tokens_made_for_nodes() {
    let gateway = Setup::new().start().await;
    let (_, free) = gateway.token(json!({ "name": "any", "role": "node" })).await;
    let (_, bound) =
        gateway.token(json!({ "name": "mac", "role": "node", "node_id": "mac" })).await;
    let (_, agent) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let _node = Hello::new("n").tool("a.b").token(&free).connect(&gateway).await;
    Hello::new("mac").token(&bound).connect(&gateway).await;
    let mut other = Hello::new("notmac").token(&bound).greet(&gateway).await.unwrap();
    assert_eq!(other.closed().await.0, 4409);
    refused(&gateway, &format!("token={agent}")).await;
    refused(&gateway, "").await;
    gateway.agent(&free).call("a.b", json!({})).await.assert_problem(403, "not_allowed");
}

#[tokio::test]
async fn a_token_that_was_not_encoded_counts_as_it_stands() {
    for token in ["a+b/c==", "100%", "50%41x", "a b", "ü"] {
        let gateway = Setup::new().env("SA_NODE_TOKEN", token).start().await;
        if token.is_ascii() && !token.contains(' ') {
            Hello::new("raw").token(token).connect(&gateway).await;
        }
        let encoded = token.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        Hello::new("encoded").token(&encoded).connect(&gateway).await;
    }
}

#[tokio::test]
async fn revoking_the_last_token_opens_nothing() {
    let gateway = Setup::new().start().await;
    let (id, token) = gateway.token(json!({ "name": "only", "role": "node" })).await;
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    refused(&gateway, "").await;
    refused(&gateway, &format!("token={token}")).await;
}
