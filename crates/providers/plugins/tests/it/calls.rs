//! A plugin host's call goes through all steps. The gateway finds the manifest, checks arguments
//! and settings, calls the server, and returns its answer unchanged. It is recorded like any other
//! call, and each function of a plugin is a tool in every API.

use reqwest::Method;
use sa_testkit::plugins::{add, gateway, payload};
use sa_testkit::{PluginAnswer, PluginServer, Reply, Setup, eventually};
use serde_json::json;

use crate::gateway::Serve as _;

#[tokio::test]
async fn a_hosts_call_does_all_the_steps() {
    let server = PluginServer::start(|_| {
        PluginAnswer::text(200, "text/markdown; charset=utf-8", "## Sunny\n")
    })
    .await;
    let gateway = Setup::new().config(&server.allowed()).serve().await;
    let operator = gateway.operator();
    let settings = json!({ "type": "object", "properties": { "name": { "type": "string" }, "units": { "default": "celsius" } } });
    add(
        &operator,
        &server.manifest("weather", json!({ "type": "markdown", "settings": settings })),
    )
    .await;
    let agent = gateway.new_agent("host").await;

    let header = r#"{"name":"Zo\u00eb"}"#;
    for (path, name) in [
        ("/api/gateway", "X-Sperax-Plugin-Settings"),
        ("/api/gateway/", "X-Sperax-Plugin-Settings"),
        ("/api/v1/runner", "Sperax-Plugin-Settings"),
        ("/api/gateway/v1/runner", "SperaxOS-Plugin-Settings"),
        ("/webapi/plugin/gateway", "X-Lobe-Plugin-Settings"),
    ] {
        let arguments = r#"{ "city": "Zürich", "n": 1.50 }"#;
        let body = json!({ "identifier": "weather", "apiName": "run", "arguments": arguments, "type": "markdown" });
        let reply =
            Reply::of(agent.request(Method::POST, path).header(name, header).json(&body)).await;
        assert_eq!((reply.status, reply.text.as_str()), (200, "## Sunny\n"), "{path}");
        assert_eq!(reply.headers["content-type"], "text/markdown; charset=utf-8");
        let asked = server.last();
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/run"));
        assert_eq!(asked.body, arguments, "as the model wrote them");
        assert_eq!(asked.headers["content-type"], "application/json");
        for name in sa_protocol::plugin::SETTINGS_HEADERS {
            assert_eq!(asked.headers[name], r#"{"name":"Zo\u00eb","units":"celsius"}"#);
        }
        assert!(
            !asked.headers.contains_key("authorization"),
            "the host's token is for the gateway"
        );

        let id = reply.headers["x-call-id"].to_str().unwrap().to_owned();
        let record = eventually("the record", || async {
            Some(operator.get(&format!("/v1/calls/{id}")).await).filter(|reply| reply.status == 200)
        })
        .await;
        assert_eq!(
            (&record.body["tool"], &record.body["surface"]),
            (&json!("weather__run"), &json!("plugin"))
        );
        assert_eq!(record.body["provider"]["kind"], "plugin");
    }
}

#[tokio::test]
async fn each_function_is_a_tool_on_every_surface() {
    let server = PluginServer::echo().await;
    let gateway = Setup::new().config(&server.allowed()).serve().await;
    let operator = gateway.operator();
    add(&operator, &server.manifest("weather.com", json!({}))).await;
    let agent = gateway.new_agent("a").await;
    let tools = agent.get("/v1/tools").await.body;
    let tool = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["provider"]["kind"] == "plugin")
        .unwrap()
        .clone();
    assert_eq!(
        (&tool["name"], &tool["description"]),
        (&json!("weather_com__run"), &json!("Runs."))
    );
    assert_eq!(tool["input_schema"]["required"], json!(["city"]));

    let result = agent.call("weather_com__run", json!({ "city": "Bern" })).await.result();
    assert_eq!(result["got"]["city"], "Bern");
    agent.call("weather_com__run", json!({})).await.assert_problem(422, "invalid_args");
    let mcp = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "weather_com__run", "arguments": { "city": "Chur" } } });
    let request = agent
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .json(&mcp);
    let reply = Reply::of(request).await;
    assert!(reply.text.contains("Chur"), "{}", reply.text);

    // A token for other tools does not allow this one, in this API either.
    let (_, token) =
        gateway.token(json!({ "name": "few", "role": "agent", "tools": ["demo_*"] })).await;
    let few = gateway.agent(&token);
    let refused =
        sa_testkit::plugins::gateway(&few, &payload("weather.com", json!({ "city": "x" }))).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
    let unknown =
        sa_testkit::plugins::gateway(&few, &payload("weather.net", json!({ "city": "x" }))).await;
    assert_eq!(
        refused.text,
        unknown.text.replace("weather.net", "weather.com"),
        "as if it were not there"
    );
    assert_eq!(few.get("/v1/plugins").await.body["plugins"], json!([]));
}

#[tokio::test]
async fn what_a_host_brings_along_counts_only_where_that_is_allowed() {
    let server = PluginServer::echo().await;
    let manifest = server.manifest("brought", json!({}));
    let mut payload = payload("brought", json!({ "city": "Bern" }));
    payload["manifest"] = manifest;
    let closed = Setup::new().config(&server.allowed()).serve().await;
    let reply = gateway(&closed.operator(), &payload).await;
    assert_eq!(
        (reply.status, &reply.body["errorType"]),
        (404, &json!("PluginMarketIndexNotFound"))
    );
    assert!(reply.text.contains("allow_inline_manifest"), "{}", reply.text);
    assert_eq!(server.asked().len(), 0);

    let open =
        Setup::new().config(&server.allowed()).config("allow_inline_manifest = true").serve().await;
    for _ in 0..2 {
        let reply = gateway(&open.operator(), &payload).await;
        assert_eq!(
            (reply.status, &reply.body["got"]["city"]),
            (200, &json!("Bern")),
            "{}",
            reply.text
        );
    }
    assert_eq!(open.operator().tool_names().await, Vec::<String>::new(), "nobody else sees it");
    // During development, the manifest and the host often use different names for a plugin.
    let mut renamed = payload.clone();
    renamed["identifier"] = json!("brought-dev");
    let reply = gateway(&open.operator(), &renamed).await;
    assert_eq!((reply.status, &reply.body["got"]["city"]), (200, &json!("Bern")), "{}", reply.text);
    // A manifest from the request does not get the access of an installed plugin with its name.
    let (_, token) =
        open.token(json!({ "name": "few", "role": "agent", "tools": ["brought__*"] })).await;
    assert_eq!(gateway(&open.agent(&token), &payload).await.status, 404);
    // A caller's manifest never changes a plugin that an operator has added.
    let other = PluginServer::start(|_| PluginAnswer::json(&json!("added"))).await;
    let both = format!(
        "[plugins]\nallow_inline_manifest = true\nallow_private = [\"{}\", \"{}\"]",
        server.address, other.address
    );
    let both = Setup::new().config(&both).serve().await;
    add(&both.operator(), &other.manifest("brought", json!({}))).await;
    assert_eq!(gateway(&both.operator(), &payload).await.body, "added");
}
