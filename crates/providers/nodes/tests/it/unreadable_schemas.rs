//! A schema that is valid only by the JSON grammar affects no other tool: its tool is left out, and
//! the operator is informed.

use sa_testkit::{Hello, Message, Setup};
use serde_json::json;

#[tokio::test]
async fn the_tool_is_left_out_and_named() {
    let gateway = Setup::new().start().await;
    let hello = Hello::new("odd")
        .tool("fine.tool")
        .describe(json!({ "name": "odd.tool", "input_schema": { "maximum": 77 } }));
    let mut node = sa_testkit::FakeNode::upgrade(&gateway, "").await.unwrap();
    node.send_raw(Message::text(hello.frame().to_string().replace("77", "1e999"))).await;
    assert_eq!(node.recv().await["type"], "gateway_welcome");
    node.settle().await;
    assert_eq!(gateway.operator().tool_names().await, ["fine_tool"]);
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    let ignored = nodes["nodes"][0]["about"]["ignored"][0].as_str().unwrap();
    assert!(ignored.starts_with("odd.tool: "), "{ignored}");
}
