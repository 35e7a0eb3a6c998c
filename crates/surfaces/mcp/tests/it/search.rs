//! Long tool lists are paged or offered as a search, and a scope shows its tools only to principals
//! that may see it.

use sa_core::{Output, RawJson, Scope, Tool};
use sa_testkit::mcp::{ERAS, Era, attach, connect, names, request, value};
use sa_testkit::{Gateway, Hello, Setup};
use serde_json::{Value, json};

async fn office(gateway: &Gateway) -> tokio::task::JoinHandle<()> {
    let tool = |name: &str, description: &str| json!({ "name": name, "description": description });
    let hello = Hello::new("office")
        .describe(tool("mail.send", "Sends a mail to somebody."))
        .describe(tool("calendar.addEvent", "Adds an event to a calendar."))
        .describe(tool("files.read", "Reads a file."));
    hello.connect(gateway).await.echo()
}

fn found(result: &Value) -> Vec<&str> {
    let tools = result["structuredContent"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_search_stands_for_the_list_and_calls_what_it_finds() {
    for era in ERAS {
        let gateway = Setup::new().config("[mcp]\nsearch = true").start().await;
        let _node = office(&gateway).await;
        let client = connect(&gateway, &gateway.operator, "", era, ()).await.unwrap();
        assert_eq!(names(&client).await, ["call_tool", "find_tools"]);
        let result = value(
            &client
                .call_tool(request("find_tools", json!({ "query": "mail someone" })))
                .await
                .unwrap(),
        );
        assert_eq!(found(&result)[0], "mail_send", "{result}");
        assert_eq!(result["structuredContent"]["tools"][0]["input_schema"]["type"], "object");
        let call = json!({ "name": "mail_send", "arguments": { "to": "Ada" } });
        let result = value(&client.call_tool(request("call_tool", call)).await.unwrap());
        assert_eq!(result["structuredContent"], json!({ "to": "Ada" }), "{result}");
        for bad in
            [json!({}), json!({ "query": "x", "limit": 0 }), json!({ "query": "x".repeat(2_000) })]
        {
            let refused = value(&client.call_tool(request("find_tools", bad)).await.unwrap());
            assert_eq!(refused["isError"], true, "{refused}");
        }
    }
}

#[tokio::test]
async fn a_search_finds_only_what_the_token_may_use_and_what_there_is_now() {
    let gateway = Setup::new().start().await;
    let node = office(&gateway).await;
    let (_, token) = gateway
        .token(json!({ "name": "reader", "role": "agent", "tools": ["files.read", "more.*"] }))
        .await;
    let client = connect(&gateway, &token, "?search=1", Era::Stateless, ()).await.unwrap();
    let find = |query: &str| client.call_tool(request("find_tools", json!({ "query": query })));
    assert!(found(&value(&find("mail").await.unwrap())).is_empty());
    assert_eq!(found(&value(&find("file").await.unwrap())), ["files_read"]);
    let _more = Hello::new("more").tool("more.filesystem").connect(&gateway).await.echo();
    assert_eq!(found(&value(&find("filesystem").await.unwrap())), ["more_filesystem"]);
    node.abort();
}

#[tokio::test]
async fn a_long_list_comes_in_pages_and_in_one_order() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let many =
        (0..450).fold(Hello::new("many"), |hello, number| hello.tool(&format!("t.x{number:03}")));
    let _node = many.connect(&gateway).await.echo();
    for era in ERAS {
        let client = connect(&gateway, &gateway.operator, "", era, ()).await.unwrap();
        let first = client.list_tools(None).await.unwrap();
        assert!(first.next_cursor.is_some() && first.tools.len() < 450);
        let all = names(&client).await;
        assert_eq!(all.len(), 450);
        assert!(all.is_sorted());
    }
}

#[tokio::test]
async fn a_scope_shows_its_tools_to_those_who_may_enter_it() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let _inside = attach(
        &gateway.inner().router,
        "caller",
        Scope::Channel("room".into()),
        vec![Tool::named("app_open")],
        |_, _| Box::pin(async { Ok(Output::json(RawJson::of(&json!({ "opened": true })))) }),
    );
    let (_, member) = gateway.token(json!({ "name": "member", "role": "agent" })).await;
    for era in ERAS {
        let outside = connect(&gateway, &member, "", era, ()).await.unwrap();
        assert!(names(&outside).await.is_empty());
        let inside = connect(&gateway, &member, "?channel=room", era, ()).await.unwrap();
        assert_eq!(names(&inside).await, ["app_open"]);
        let result = value(&inside.call_tool(request("app_open", json!({}))).await.unwrap());
        assert_eq!(result["structuredContent"]["opened"], true);
    }
    let (_, stranger) =
        gateway.token(json!({ "name": "stranger", "role": "agent", "channels": ["lobby"] })).await;
    assert!(connect(&gateway, &stranger, "?channel=room", Era::Stateless, ()).await.is_err());
}
