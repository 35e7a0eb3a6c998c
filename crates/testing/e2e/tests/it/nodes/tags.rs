//! Nodes by their tags, and two nodes with the same id.

use sa_gateway_kit::{Hello, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

fn tagged(id: &str, tags: Value) -> Hello {
    let node = json!({ "id": id, "name": id, "node_type": "t", "version": "1", "tags": tags });
    Hello::new(id).with("node", node)
}

#[tokio::test]
async fn nodes_are_listed_by_tag() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _office = tagged("office", json!(["gpu", "to ship"])).connect(&gateway).await;
    let _home = tagged("home", json!(["gpux"])).connect(&gateway).await;
    for (query, expected) in [
        ("", json!(["home", "office"])),
        ("?tag=gpu", json!(["office"])),
        ("?tag=to%20ship", json!(["office"])),
        ("?tag=", json!([])),
    ] {
        let list = gateway.operator().get(&format!("/v1/nodes{query}")).await;
        let ids: Value =
            list.body["nodes"].as_array().unwrap().iter().map(|node| node["id"].clone()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    assert_eq!(gateway.operator().get("/v1/nodes?tags=gpu").await.status, 400);
    let shown = gateway.cli(&["nodes"]).run().await;
    shown.assert_code(0);
    assert!(
        shown.stdout.contains("TAGS") && shown.stdout.contains("gpu to ship"),
        "{}",
        shown.stdout
    );
    let shown = gateway.cli(&["nodes", "--tag", "gpux"]).run().await;
    assert!(shown.stdout.contains("home") && !shown.stdout.contains("office"), "{}", shown.stdout);
    let none = gateway.cli(&["nodes", "--tag", "other"]).run().await;
    assert!(none.stdout.contains("No node has the tag other"), "{}", none.stdout);
    gateway.stop().await;
}

#[tokio::test]
async fn doctor_reports_two_nodes_that_keep_replacing_each_other() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut last = Hello::new("mac").tool("a.b").connect(&gateway).await;
    for _ in 0..3 {
        let next = Hello::new("mac").tool("a.b").connect(&gateway).await;
        assert_eq!(last.closed().await.0, 4410);
        last = next;
    }
    let shown = gateway.cli(&["doctor"]).run().await;
    assert!(shown.stdout.contains("\"mac\" replaced each other 3 times"), "{}", shown.stdout);
    drop(last);
    gateway.stop().await;
}
