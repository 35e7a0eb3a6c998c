//! A held prefix receives the calls of its tools in both spellings.

use sa_testkit::{Gateway, Hello, Setup};
use serde_json::json;

async fn token(gateway: &Gateway, id: &str) -> String {
    gateway.token(json!({ "name": id, "role": "node", "node_id": id })).await.1
}

#[tokio::test]
async fn a_held_prefix_gets_the_calls_by_underscore_names_too() {
    let gateway = Setup::new().start().await;
    let _open = Hello::new("open").tool("office.greet").connect(&gateway).await;
    let token = token(&gateway, "mac").await;
    let mut holder = Hello::new("mac").capability("office").token(&token).connect(&gateway).await;
    let call = gateway.operator().call_later("office_greet", json!({}));
    let request = holder.request().await;
    assert_eq!(request.tool, "office.greet");
    holder.answer(&request.id, json!("held")).await;
    assert_eq!(call.await.unwrap().result(), "held");
}
