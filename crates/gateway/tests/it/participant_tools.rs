//! A participant's token can call the gateway's tools only if it was created for them, in any API.
//! The methods of its channels depend on its rights there.

use sa_gateway_kit::chat::{ask, tool_names};
use sa_gateway_kit::mcp::{ERAS, connect, names, request};
use sa_gateway_kit::plugins::{add, gateway as ask_plugin};
use sa_gateway_kit::{
    Agent, Gateway, Hello, ModelReply, Participant, PluginServer, ScriptedModel, Setup, soon,
};
use serde_json::{Value, json};

const SEARCH: &str = "pubsub_worker_search";

/// Joins a participant with a method, and answers calls of it during the whole test.
async fn worker(gateway: &Gateway) -> tokio::task::JoinHandle<()> {
    let mut worker = Participant::join(gateway, "room", "worker").await;
    let method =
        json!({ "name": "search", "description": "Search", "parameters": { "type": "object" } });
    let answer =
        worker.update(json!({ "name": "worker", "handle": "worker", "methods": [method] })).await;
    assert_eq!(answer["kind"], "persisted", "{answer}");
    tokio::spawn(async move {
        loop {
            let call = worker.message("method-call").await;
            let result = json!({ "callId": call["payload"]["callId"], "content": "found", "complete": true });
            worker.say("method-result", result).await;
        }
    })
}

/// Tries to call and list a node's tool in every API, and returns the results.
async fn tried(gateway: &Gateway, token: &str) -> Vec<(&'static str, bool)> {
    let agent = gateway.agent(token);
    let mut tried = vec![
        ("list", agent.tool_names().await.contains(&"demo_echo".to_owned())),
        ("list in the channel", listed_in_room(&agent).await.contains(&"demo_echo".to_owned())),
        ("rest", agent.call("demo.echo", json!({})).await.status == 200),
        ("rest in the channel", call_in_room(&agent, "demo_echo").await == 200),
        (
            "functions",
            !agent.get("/v1/functions?tools=demo_*").await.body["tools"]
                .as_array()
                .unwrap()
                .is_empty(),
        ),
    ];
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "demo_echo", "arguments": "{}" } });
    let executed = agent.post("/v1/functions/execute", &json!({ "tool_calls": [call] })).await;
    assert_eq!(executed.status, 200, "{}", executed.text);
    tried.push(("execute", !executed.text.contains("there is no tool")));
    let mut socket = agent.socket().await;
    socket.call("1", "demo.echo", json!({})).await;
    let answer = soon(async {
        loop {
            let frame = socket.recv().await;
            if frame["type"] == "done" || frame["type"] == "error" {
                break frame;
            }
        }
    });
    tried.push(("socket", answer.await["type"] == "done"));
    for era in ERAS {
        let client = connect(gateway, token, "?channel=room", era, ()).await.unwrap();
        let listed = names(&client).await;
        assert!(listed.contains(&SEARCH.to_owned()), "{listed:?}");
        tried.push(("mcp list", listed.contains(&"demo_echo".to_owned())));
        let called = client.call_tool(request("demo_echo", json!({}))).await;
        tried.push(("mcp", called.is_ok_and(|result| result.is_error != Some(true))));
        let method = client.call_tool(request(SEARCH, json!({}))).await.unwrap();
        assert_ne!(method.is_error, Some(true), "{method:?}");
    }
    let plugin = json!({ "identifier": "mail", "apiName": "read", "arguments": "{}" });
    tried.push(("plugin", ask_plugin(&agent, &plugin).await.status == 200));
    let plugins = agent.get("/v1/plugins").await.body;
    tried.push(("plugins", !plugins["plugins"].as_array().unwrap().is_empty()));
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    let mut inside = Participant::connect(gateway, &path).await;
    // Uses the token as the call id, because it is unique.
    let call = json!({ "callId": token, "methodName": "demo.echo", "providerId": "switchboard", "args": {} });
    assert_eq!(inside.say("method-call", call).await["kind"], "persisted");
    let result = inside
        .until(|frame| frame["type"] == "method-result" && frame["payload"]["callId"] == token)
        .await;
    tried.push(("channel", result["payload"]["isError"] != json!(true)));
    tried
}

async fn listed_in_room(agent: &Agent) -> Vec<String> {
    let list = agent.get("/v1/tools?channel=room").await.body;
    list["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn call_in_room(agent: &Agent, tool: &str) -> u16 {
    agent.post(&format!("/v1/tools/{tool}/call?channel=room"), &json!({ "args": {} })).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_tools_are_for_those_whose_token_names_them() {
    let server = PluginServer::echo().await;
    let gateway = Setup::new().config(&server.allowed()).start().await;
    let api = json!([{ "name": "read", "description": "d", "url": server.url("/read") }]);
    add(&gateway.operator(), &server.manifest("mail", json!({ "api": api }))).await;
    let _node = Hello::new("laptop").tool("demo.echo").connect(&gateway).await.echo();
    let worker = worker(&gateway).await;
    for (name, tools, expected) in [
        ("none", json!([]), false),
        ("some", json!(["demo*", "mail__*"]), true),
        ("all", json!(["*"]), true),
    ] {
        let token =
            json!({ "name": name, "role": "participant", "tools": tools, "channels": ["room"] });
        let (_, token) = gateway.token(token).await;
        for (surface, allowed) in tried(&gateway, &token).await {
            assert_eq!(allowed, expected, "{surface} with {tools}");
        }
        let agent = gateway.agent(&token);
        assert!(agent.tool_names().await.contains(&SEARCH.to_owned()), "{tools}");
        assert_eq!(call_in_room(&agent, SEARCH).await, 200, "a method, with {tools}");
    }
    let other =
        json!({ "name": "other", "role": "participant", "tools": ["else*"], "channels": ["room"] });
    let (_, token) = gateway.token(other).await;
    assert!(tried(&gateway, &token).await.iter().all(|(_, allowed)| !allowed));

    // The methods of a channel need the right to call there.
    let page = json!({ "name": "page", "role": "participant", "channels": ["room"], "channel_rights": ["read", "publish"] });
    let page = gateway.agent(&gateway.token(page).await.1);
    assert_eq!(page.tool_names().await, Vec::<String>::new());
    page.call(SEARCH, json!({})).await.assert_problem(404, "not_found");
    page.call("demo.echo", json!({})).await.assert_problem(404, "not_found");
    let wrong = page.call("demo.ecko", json!({})).await;
    assert!(!wrong.text.contains("demo_echo"), "{}", wrong.text);
    let hosts: Value = page.post("/v1/eligibility", &json!({})).await.body;
    assert!(!hosts.to_string().contains("laptop"), "{hosts}");
    worker.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn a_participant_asks_no_model_that_its_token_does_not_name() {
    let model = ScriptedModel::start().await;
    let gateway = Setup::new().config(&model.config("")).start().await;
    let _node = Hello::new("laptop").tool("demo.echo").connect(&gateway).await.echo();
    for (name, tools, models, offered) in [
        ("none", json!([]), json!([]), None),
        ("some", json!(["demo*"]), json!(["other"]), None),
        ("one", json!([]), json!(["scripted"]), Some(vec![])),
        ("two", json!(["demo*"]), json!(["*"]), Some(vec!["demo_echo"])),
        ("all", json!(["*"]), json!([]), None),
    ] {
        let token =
            json!({ "name": name, "role": "participant", "tools": tools, "models": models });
        let (_, token) = gateway.token(token).await;
        let agent = gateway.agent(&token);
        let listed = agent.get("/v1/models").await.body["data"].as_array().unwrap().len();
        assert_eq!(listed, usize::from(offered.is_some()), "{name}");
        let asked = match offered {
            Some(offered) => {
                let expected: Vec<String> = offered.into_iter().map(str::to_owned).collect();
                let check =
                    move |request: &Value| assert_eq!(tool_names(request), expected, "{request}");
                model.then(check, ModelReply::text("hello"));
                200
            }
            None => 404,
        };
        // A refused request does not reach the model server, which has no reply prepared.
        for body in [ask("hi"), sa_gateway_kit::chat::with(ask("hi"), "stream", json!(true))]
            .into_iter()
            .take(if asked == 200 { 1 } else { 2 })
        {
            let answer = agent.post("/v1/chat/completions", &body).await;
            assert_eq!(answer.status, asked, "{name}: {}", answer.text);
        }
    }
    model.finish();
    gateway.stop().await;
}
