//! The stored part of a node's hello is limited: each field, each hello, and all hellos together.

use futures_util::StreamExt as _;
use sa_testkit::{Gateway, Hello, Message, Setup, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn a_hello_that_says_too_much_is_refused_with_the_field() {
    let gateway = Setup::new().start().await;
    let node = |field: &str, value: Value| {
        let mut node = json!({ "id": "n", "name": "n", "node_type": "t", "version": "1" });
        node[field] = value;
        Hello::new("n").with("node", node)
    };
    let long = "x".repeat(5_000);
    let schema = |bytes| json!({ "name": "t.x", "input_schema": { "type": "object", "title": "x".repeat(bytes) } });
    let cases = [
        (node("tags", json!(vec!["t".repeat(1_000); 14_500])), "node.tags has"),
        (node("tags", json!(vec![""; 2_000])), "node.tags has"),
        (node("name", json!(long)), "node.name has"),
        (node("node_type", json!(long)), "node.node_type has"),
        (node("version", json!(long)), "node.version has"),
        (
            Hello::new("n").with("host", json!({ "os": "linux", "more": "x".repeat(200_000) })),
            "host has",
        ),
        (Hello::new("n").describe(schema(5_000_000)), "tools"),
        (
            Hello::new("n").describe(json!({ "name": "t.x", "title": "x".repeat(5_000_000) })),
            "tools",
        ),
        (
            Hello::new("n")
                .describe(json!({ "name": "t.x", "annotations": { "x": "x".repeat(5_000_000) } })),
            "tools",
        ),
    ];
    let count = cases.len() as u64;
    for (hello, words) in cases {
        let mut node = hello.greet(&gateway).await.unwrap();
        let (code, why) = node.closed().await;
        assert!(code == 4400 && why.contains(words), "{code} {why:?} should name {words:?}");
    }
    assert_eq!(gateway.refused("node", "refused").await, count);
    // A node with many descriptions stays far below the limit.
    let mut much =
        Hello::new("much").with("host", json!({ "os": "linux", "env": vec!["A_VARIABLE"; 1_000] }));
    for number in 0..500 {
        much = much.describe(json!({ "name": format!("t.n{number}"), "description": long }));
    }
    much.connect(&gateway).await;
}

/// Two hellos of [`large`] and some more take three quarters of the budget.
async fn crowded(memory_ms: u64) -> Gateway {
    Setup::new()
        .config(&format!("[nodes]\nhello_bytes = 44_000\noffline_memory_ms = {memory_ms}"))
        .start()
        .await
}

fn large(id: &str) -> Hello {
    Hello::new(id).describe(json!({ "name": format!("{id}.x"), "description": "x".repeat(15_000) }))
}

async fn refused(gateway: &Gateway, id: &str) {
    let (code, why) = large(id).greet(gateway).await.unwrap().closed().await;
    assert!(code == 1013 && why.contains("nodes.hello_bytes"), "{code} {why:?}");
}

#[tokio::test]
async fn all_hellos_together_have_so_much_room() {
    let gateway = crowded(600_000).await;
    let first = large("first").connect(&gateway).await;
    let _second = large("second").connect(&gateway).await;
    refused(&gateway, "third").await;
    // A small hello still fits.
    Hello::new("little").connect(&gateway).await;
    drop(first);
    eventually("the first is away", || async {
        let nodes = gateway.operator().get("/v1/nodes").await;
        nodes.body["nodes"]
            .as_array()?
            .iter()
            .any(|node| node["id"] == "first" && node["online"] == false)
            .then_some(())
    })
    .await;
    // The remembered hello keeps its share of the budget, which the node uses when it reconnects.
    refused(&gateway, "third").await;
    let _first = large("first").connect(&gateway).await;
    refused(&gateway, "third").await;
    assert_eq!(gateway.refused("node", "no_room").await, 3);
    assert_eq!(gateway.refused("node", "refused").await, 0);
}

#[tokio::test]
async fn who_is_forgotten_leaves_its_room_to_others() {
    let gateway = crowded(1).await;
    let first = large("first").connect(&gateway).await;
    let _second = large("second").connect(&gateway).await;
    refused(&gateway, "third").await;
    drop(first);
    eventually("the third has room", || async {
        let mut node = large("third").greet(&gateway).await.ok()?;
        matches!(node.socket.next().await, Some(Ok(Message::Text(_)))).then_some(())
    })
    .await;
}
