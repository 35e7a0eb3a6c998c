//! `GET /v1/tools` lists every tool once, in a fixed order, without absent fields, page by page.

use sa_testkit::{Hello, Setup};
use serde_json::{Value, json};

#[tokio::test]
async fn a_tool_is_listed_with_what_it_says_of_itself() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    let full = json!({
        "name": "notes.search", "title": "Search", "description": "Finds notes.",
        "input_schema": schema, "output_schema": { "type": "array" },
    });
    let _node = Hello::new("mac").describe(full).tool("notes.bare").connect(&gateway).await;

    let list = gateway.operator().get("/v1/tools").await;
    assert_eq!(list.status, 200);
    assert!(list.body.get("next_cursor").is_none());
    let provider = json!({ "kind": "node", "id": "mac" });
    let expected = json!({ "tools": [
        { "name": "notes_bare", "provider": provider, "online": true },
        {
            "name": "notes_search", "title": "Search", "description": "Finds notes.", "input_schema": schema,
            "output_schema": { "type": "array" }, "provider": provider, "online": true,
        },
    ]});
    assert_eq!(list.body, expected);
}

#[tokio::test]
async fn pages_hold_every_tool_once_in_order() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let mut hello = Hello::new("n");
    for number in (0..25).rev() {
        hello = hello.tool(&format!("many.t{number:02}"));
    }
    let _node = hello.connect(&gateway).await;
    let operator = gateway.operator();
    let (mut names, mut path, mut pages) = (Vec::new(), "/v1/tools?limit=10".to_owned(), 0);
    loop {
        let page = operator.get(&path).await.body;
        names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()));
        pages += 1;
        match &page["next_cursor"] {
            Value::String(cursor) => path = format!("/v1/tools?limit=10&cursor={cursor}"),
            _ => break,
        }
    }
    let expected: Vec<Value> = (0..25).map(|number| json!(format!("many_t{number:02}"))).collect();
    assert_eq!((pages, names), (3, expected));
}

#[tokio::test]
async fn a_tool_whose_node_left_stays_listed_as_offline() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").tool("a.b").connect(&gateway).await;
    node.send_raw(sa_testkit::Message::Close(None)).await;
    node.closed().await;
    let operator = gateway.operator();
    sa_testkit::eventually("the tool offline", || async {
        (operator.get("/v1/tools").await.body["tools"][0]["online"] == false).then_some(())
    })
    .await;
}
