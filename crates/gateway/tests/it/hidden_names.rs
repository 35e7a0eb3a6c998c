//! A token for some tools cannot learn the names of others. No route or API shows them, and an
//! answer about one of them equals the answer about an unknown name.

use std::collections::BTreeSet;

use reqwest::Method;
use sa_gateway_kit::mcp::{Era, connect, request, value};
use sa_gateway_kit::plugins::add;
use sa_gateway_kit::{Agent, Gateway, Hello, Participant, PluginServer, Reply, Setup, soon};
use serde_json::{Value, json};

/// A part of every hidden name, and an unused word of the same length.
const CANARY: &str = "canary";
const NOBODY: &str = "unheld";

/// Endless answers are tested separately.
const STREAMS: [&str; 4] =
    ["/v1/events", "/v1/channels/{name}/events", "/v1/sessions/{id}/events", "/mcp"];

/// Returns the value for a path parameter.
fn filled(path: &str, word: &str) -> String {
    let of = |segment: &str| match segment {
        "{name}" if path.starts_with("/v1/tools") => format!("{word}.read"),
        "{name}" if path.starts_with("/v1/models") => format!("{word}-model"),
        "{name}" if path.starts_with("/v1/channels") => format!("{word}-room"),
        "{id}" if path.starts_with("/v1/plugins") => format!("{word}-plugin"),
        "{id}" if path.starts_with("/v1/nodes") => format!("{word}-node"),
        other if other.starts_with('{') => format!("{word}-any"),
        other => other.to_owned(),
    };
    path.split('/').map(of).collect::<Vec<_>>().join("/")
}

/// Returns a request body with the word in each field that can hold a name.
fn body(word: &str) -> Value {
    json!({
        "tool": format!("{word}.read"), "identifier": format!("{word}-plugin"), "apiName": "run", "arguments": "{}",
        "model": format!("{word}-model"), "messages": [{ "role": "user", "content": "hi" }],
    })
}

/// Removes ids and durations, which differ each time, from an answer.
fn steady(text: &str) -> String {
    let is_id = |word: &str| {
        word.len() >= 20 && word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    let parts = text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let parts = parts.map(|part| {
        let word = part.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let number =
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) && word.len() > 3;
        if is_id(word) || number { "ID".to_owned() + &part[word.len()..] } else { part.to_owned() }
    });
    parts.collect()
}

async fn send(agent: &Agent, method: &str, path: &str, word: &str) -> Reply {
    let method: Method = method.to_uppercase().parse().unwrap();
    let request = agent.request(method.clone(), &filled(path, word));
    Reply::of(if method == Method::GET { request } else { request.json(&body(word)) }).await
}

/// Starts a gateway with a hidden name of each kind.
async fn gateway(server: &PluginServer) -> Gateway {
    let model = "[models.canary-model]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let gateway = Setup::new().config(&server.allowed()).config(model).start().await;
    let api = json!([{ "name": "run", "description": "d", "url": server.url("/run") }]);
    add(&gateway.operator(), &server.manifest("canary-plugin", json!({ "api": api }))).await;
    gateway
}

/// Creates tokens that may see none of these.
async fn tokens(gateway: &Gateway) -> Vec<String> {
    let mut made = Vec::new();
    for token in [
        json!({ "name": "tools", "role": "agent", "tools": ["demo_*"] }),
        json!({ "name": "channels", "role": "agent", "channels": ["lobby"] }),
        json!({ "name": "models", "role": "caller", "models": ["gpt"] }),
        json!({ "name": "page", "role": "participant", "channels": ["lobby"] }),
    ] {
        made.push(gateway.token(token).await.1);
    }
    made
}

fn canary_node() -> Hello {
    let read = json!({ "name": "canary.read", "capabilities": ["canary.use"] });
    Hello::new("canary-node")
        .describe(read)
        .capability("canary.open")
        .with("host", json!({ "role": "execution" }))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_tells_a_name_that_the_token_may_not_see() {
    let server = PluginServer::echo().await;
    let gateway = gateway(&server).await;
    let _node = canary_node().connect(&gateway).await.echo();
    let _demo = Hello::new("demo").tool("demo.echo").connect(&gateway).await.echo();
    let mut worker = Participant::join(&gateway, "canary-room", "worker").await;
    worker.update(json!({ "handle": "canary", "methods": [{ "name": "canary" }] })).await;
    assert_eq!(gateway.operator().call("canary_read", json!({})).await.status, 200);

    let described = gateway.operator().get("/openapi.json").await.body["paths"].clone();
    let mut seen = BTreeSet::new();
    for token in tokens(&gateway).await {
        let agent = gateway.agent(&token);
        for (path, methods) in described.as_object().unwrap() {
            for method in
                methods.as_object().unwrap().keys().filter(|_| !STREAMS.contains(&&**path))
            {
                // Each route must treat the hidden name like an unknown one.
                let (real, none) = (
                    send(&agent, method, path, CANARY).await,
                    send(&agent, method, path, NOBODY).await,
                );
                let route = format!("{method} {path}");
                assert!(!none.text.to_lowercase().contains(CANARY), "{route}: {}", none.text);
                let answer = |reply: &Reply, word: &str| {
                    (reply.status, steady(&reply.text).replace(word, "WORD"))
                };
                assert_eq!(
                    answer(&real, CANARY),
                    answer(&none, NOBODY),
                    "{route} tells what there is"
                );
                seen.insert(route);
            }
        }
        // The agent's own history contains only names that it has used.
        let calls = agent.get("/v1/calls").await.text;
        assert!(!calls.contains("canary_read") && !calls.contains("canary-node"), "{calls}");
    }
    assert!(seen.len() > 50, "{}", seen.len());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_and_no_mcp_client_learns_one_either() {
    let server = PluginServer::echo().await;
    let gateway = gateway(&server).await;
    let _node = canary_node().connect(&gateway).await.echo();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "string", "x-mcp-header": "N" } } });
    let header = json!({ "name": "canary.header", "input_schema": schema });
    let _other = Hello::new("canary-two").describe(header).connect(&gateway).await.echo();
    for token in tokens(&gateway).await {
        let agent = gateway.agent(&token);
        for name in ["read", "header", "open.x", "none"] {
            let asked = |word: &str| format!("{word}.{name}");
            let answer = |text: String, word: &str| steady(&text).replace(word, "WORD");

            let mut socket = agent.socket().await;
            let mut answers = Vec::new();
            for word in [CANARY, NOBODY] {
                socket.call(word, &asked(word), json!({})).await;
                answers.push(answer(socket.wait_for("error", word).await.to_string(), word));
            }
            assert_eq!(answers[0], answers[1], "over the socket");

            for query in ["", "?search=1"] {
                let client = connect(&gateway, &token, query, Era::Stateless, ()).await.unwrap();
                let listed = json!(client.list_all_tools().await.unwrap()).to_string();
                let mut answers = Vec::new();
                for word in [CANARY, NOBODY] {
                    let call = if query.is_empty() {
                        request(asked(word), json!({}))
                    } else {
                        request("call_tool", json!({ "name": asked(word) }))
                    };
                    let called =
                        client.call_tool(call).await.map(|result| value(&result).to_string());
                    answers.push(answer(called.unwrap_or_else(|error| error.to_string()), word));
                }
                assert_eq!(answers[0], answers[1], "over MCP {query}");
                assert!(!listed.contains(CANARY), "{listed}");
                if !query.is_empty() {
                    let found = request("find_tools", json!({ "query": "canary read" }));
                    let found = value(&client.call_tool(found).await.unwrap()).to_string();
                    assert!(!found.contains("canary_read"), "{found}");
                }
                for listed in [
                    json!(client.list_all_prompts().await.unwrap()),
                    json!(client.list_all_resources().await.unwrap()),
                    json!(client.list_all_resource_templates().await.unwrap()),
                ] {
                    assert_eq!(listed, json!([]));
                }
            }
        }
    }
    // In a channel, the gateway's tools are methods of a participant.
    let page = json!({ "name": "caller", "role": "participant", "channels": ["lobby"] });
    let (_, token) = gateway.token(page).await;
    let mut inside =
        Participant::connect(&gateway, &format!("/?token={token}&channel=lobby")).await;
    let mut answers = Vec::new();
    for word in [CANARY, NOBODY] {
        let method = format!("{word}.read");
        let call = json!({ "callId": word, "methodName": method, "providerId": "switchboard", "args": {} });
        inside.say("method-call", call).await;
        let is_answer =
            |frame: &Value| frame["type"] == "method-result" && frame["payload"]["callId"] == word;
        let result = soon(inside.until(is_answer)).await;
        answers.push(result["payload"].to_string().replace(word, "WORD"));
    }
    assert_eq!(answers[0], answers[1], "in a channel");
    gateway.stop().await;
}
