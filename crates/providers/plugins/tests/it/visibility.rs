//! A token sees only the plugins, and their functions, that it may call. All others look as if they
//! did not exist.

use reqwest::Method;
use sa_testkit::plugins::{add, gateway};
use sa_testkit::{Agent, PluginServer, Reply, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

async fn listed(agent: &Agent) -> Vec<Value> {
    let list = agent.get("/v1/plugins").await.body;
    list["plugins"].as_array().unwrap().iter().map(|plugin| plugin["identifier"].clone()).collect()
}

#[tokio::test]
async fn a_restricted_token_sees_what_it_may_call() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).serve().await;
    let operator = at.operator();
    let two = json!([{ "name": "read", "description": "d", "url": server.url("/read") }, { "name": "write", "description": "d", "url": server.url("/write") }]);
    add(&operator, &server.manifest("mail", json!({ "api": two }))).await;
    add(&operator, &server.manifest("secret", json!({}))).await;
    add(&operator, &server.manifest("off", json!({}))).await;
    let page = json!({ "type": "standalone", "ui": { "url": "https://ui.example/" }, "api": [{ "name": "draw", "description": "d" }] });
    add(&operator, &server.manifest("page", page)).await;
    operator.post("/v1/plugins/off/disable", &json!({})).await;

    let tools = ["mail__read", "off__*"];
    let (_, token) = at.token(json!({ "name": "few", "role": "agent", "tools": tools })).await;
    let few = at.agent(&token);
    assert_eq!(listed(&few).await, ["mail"]);
    let shown = few.get("/v1/plugins/mail").await.body;
    assert_eq!(
        (shown["api"].as_array().unwrap().len(), &shown["api"][0]["name"]),
        (1, &json!("read")),
        "{shown}"
    );
    let unknown = few.get("/v1/plugins/nowhere").await;
    unknown.assert_problem(404, "not_found");
    for id in ["secret", "off", "page"] {
        let expected = unknown.text.replace("nowhere", id);
        assert_eq!(few.get(&format!("/v1/plugins/{id}")).await.text, expected);
        let path = format!("/v1/plugins/{id}/settings");
        assert_eq!(few.get(&path).await.text, expected);
        assert_eq!(few.delete(&path).await.text, expected);
        let put = few.request(Method::PUT, &path).json(&json!({ "settings": {} }));
        assert_eq!(Reply::of(put).await.text, expected);
    }
    assert_eq!(few.get("/v1/plugins/mail/settings").await.status, 200);
    // An error message does not reveal other functions either.
    let wrong = json!({ "identifier": "mail", "apiName": "nothing", "arguments": "{}" });
    let said = gateway(&few, &wrong).await.text;
    assert!(said.contains("read") && !said.contains("write"), "{said}");

    let (_, token) =
        at.token(json!({ "name": "draws", "role": "agent", "tools": ["page__*"] })).await;
    assert_eq!(
        listed(&at.agent(&token)).await,
        ["page"],
        "its page does the work, for every principal that may use it"
    );
    assert_eq!(listed(&at.new_agent("all").await).await, ["mail", "off", "page", "secret"]);
    let (_, token) = at.token(json!({ "name": "n", "role": "node" })).await;
    assert_eq!(
        listed(&at.agent(&token)).await,
        Vec::<Value>::new(),
        "who calls nothing sees nothing"
    );
    let (_, token) =
        at.token(json!({ "name": "root", "role": "operator", "tools": ["mail__read"] })).await;
    assert_eq!(
        listed(&at.agent(&token)).await,
        ["mail", "off", "page", "secret"],
        "who manages them sees them"
    );
}
