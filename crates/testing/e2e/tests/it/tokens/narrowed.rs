//! A token that names tools, channels or models can use exactly those, in every API.

use futures_util::StreamExt as _;
use sa_gateway_kit::chat::ask;
use sa_gateway_kit::mcp::{ERAS, connect, names};
use sa_gateway_kit::{
    Agent, CallSocket, Gateway, Hello, ModelReply, Participant, ScriptedModel, Setup, soon,
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Access of a token: tools, channels and models, and whether it starts sessions.
type Reach = (bool, bool, bool, bool);

/// Returns the tools, channels and models that each API shows to a token. Checks that it starts
/// sessions, or gets the answer for an unknown tool.
async fn reached(
    gateway: &Gateway,
    token: &str,
    starts_sessions: bool,
) -> Vec<(String, char, bool)> {
    let agent = gateway.agent(token);
    let mut reached = Vec::new();
    let mut note = |surface: &str, what: char, allowed: bool| {
        reached.push((surface.to_owned(), what, allowed));
    };
    let lists = |list: &Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().any(|item| item[key] == name)
    };

    note("GET /v1/tools", 't', agent.tool_names().await.contains(&"demo_echo".to_owned()));
    note("call", 't', agent.call("demo.echo", json!({})).await.status == 200);
    let functions = agent.get("/v1/functions").await.text;
    note("GET /v1/functions", 't', functions.contains("demo_echo"));
    let hosts = agent.post("/v1/eligibility", &json!({})).await.text;
    note("POST /v1/eligibility", 't', hosts.contains("laptop"));
    let started = agent.post("/v1/sessions", &json!({ "message": "hi" })).await;
    assert_eq!(started.status, if starts_sessions { 201 } else { 404 }, "{}", started.text);

    let list = agent.get("/v1/channels").await.body;
    note("GET /v1/channels", 'c', lists(&list["channels"], "name", "room"));
    for path in ["/v1/channels/room", "/v1/channels/room/messages"] {
        note(path, 'c', agent.get(path).await.status == 200);
    }
    note("follow", 'c', agent.events("/v1/channels/room/events").await.status == 200);
    let said = agent
        .post("/v1/channels/room/messages", &json!({ "type": "note", "payload": {} }))
        .await
        .status;
    note("publish", 'c', said == 201);
    note("GET /v1/tools?channel", 'c', agent.get("/v1/tools?channel=room").await.status == 200);
    note("socket", 'c', joins(gateway, token).await);
    for era in ERAS {
        let inside = connect(gateway, token, "?channel=room", era, ()).await;
        note(&format!("MCP {era:?}"), 'c', inside.is_ok());
        let outside = connect(gateway, token, "", era, ()).await.unwrap();
        note(&format!("MCP {era:?}"), 't', names(&outside).await.contains(&"demo_echo".to_owned()));
    }

    let list = agent.get("/v1/models").await.body;
    note("GET /v1/models", 'm', lists(&list["data"], "id", "scripted"));
    note("GET /v1/models/{name}", 'm', agent.get("/v1/models/scripted").await.status == 200);
    note("chat", 'm', agent.post("/v1/chat/completions", &ask("hi")).await.status == 200);
    reached
}

/// Returns whether the token can join the channel over its WebSocket.
async fn joins(gateway: &Gateway, token: &str) -> bool {
    let mut participant =
        Participant::connect(gateway, &format!("/?token={token}&channel=room")).await;
    matches!(soon(participant.socket.next()).await, Some(Ok(Message::Text(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reaches_what_it_names_and_nothing_else() {
    let model = ScriptedModel::start().await;
    model.always(|_| ModelReply::text("hello"));
    let config = model.config("").replace("enabled = false", "enabled = true");
    let gateway = Setup::new().config(&config).start().await;
    let laptop =
        Hello::new("laptop").describe(json!({ "name": "demo.echo", "capabilities": ["a.b"] }));
    let _node = laptop.connect(&gateway).await.echo();
    let _ann = Participant::join(&gateway, "room", "ann").await;
    let rows: &[(&str, &str, Value, Reach)] = &[
        ("plain", "agent", json!({}), (true, true, true, true)),
        ("tools", "agent", json!({ "tools": ["demo*"] }), (true, false, false, false)),
        ("starter", "agent", json!({ "tools": ["session_message"] }), (false, false, false, true)),
        ("every-tool", "agent", json!({ "tools": ["*"] }), (true, false, false, true)),
        ("channels", "agent", json!({ "channels": ["ro*"] }), (false, true, false, false)),
        ("models", "caller", json!({ "models": ["script*"] }), (false, false, true, false)),
        (
            "others",
            "user",
            json!({ "tools": ["x"], "channels": ["x"], "models": ["x"] }),
            (false, false, false, false),
        ),
        (
            "two",
            "agent",
            json!({ "tools": ["demo_*"], "models": ["*"] }),
            (true, false, true, false),
        ),
        (
            "three",
            "agent",
            json!({ "tools": ["demo_*"], "channels": ["room"], "models": ["*"] }),
            (true, true, true, false),
        ),
        ("page", "participant", json!({}), (false, true, false, false)),
        ("page-tools", "participant", json!({ "tools": ["*"] }), (true, false, false, true)),
        (
            "page-model",
            "participant",
            json!({ "models": ["scripted"], "channels": ["room"] }),
            (false, true, true, false),
        ),
    ];
    for (name, role, names, (tools, channels, models, starts_sessions)) in rows {
        let mut token = names.clone();
        (token["name"], token["role"]) = (json!(name), json!(role));
        let (_, token) = gateway.token(token).await;
        for (surface, what, allowed) in reached(&gateway, &token, *starts_sessions).await {
            let expected = match what {
                't' => *tools,
                'c' => *channels,
                _ => *models,
            };
            assert_eq!(allowed, expected, "{role} {name} {names}: {surface}");
        }
        assert!(gateway.agent(&token).delete("/v1/channels/room").await.status == 403);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn models_are_not_named_among_the_tools() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    let body = json!({ "name": "page", "role": "participant", "tools": ["models/gpt"] });
    let reply = operator.post("/v1/tokens", &body).await;
    reply.assert_problem(400, "bad_request");
    assert!(reply.text.contains("--model"), "{}", reply.text);
    let body = json!({ "name": "page", "role": "participant", "models": ["gpt"] });
    let made = operator.post("/v1/tokens", &body).await;
    assert_eq!((made.status, &made.body["models"]), (201, &json!(["gpt"])));
    assert!(made.body["notice"].as_str().unwrap().contains("no channels"), "{}", made.text);
    gateway.stop().await;
}

/// Connects a socket that receives notices.
async fn listening(agent: &Agent) -> CallSocket {
    let mut socket = agent.socket().await;
    socket.send(json!({ "type": "listen" })).await;
    socket.send(json!({ "type": "ping", "timestamp": 1 })).await;
    while socket.recv().await["type"] != "pong" {}
    socket
}

async fn tools_changed(socket: &mut CallSocket) -> Value {
    loop {
        let frame = socket.recv().await;
        if frame["event"] == "tools_changed" {
            return frame;
        }
    }
}

#[tokio::test]
async fn changes_that_a_token_cannot_see_are_not_announced_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new()
        .config(&crate::upstream::server::stdio("test", &[], dir.path(), ""))
        .start()
        .await;
    sa_gateway_kit::upstream::until(&gateway, "test", "ready").await;
    let (_, token) =
        gateway.token(json!({ "name": "narrow", "role": "agent", "tools": ["demo*"] })).await;
    let operator = gateway.operator();
    let mut all = listening(&operator).await;
    let mut narrow = listening(&gateway.agent(&token)).await;
    let _other = Hello::new("other").tool("x.y").connect(&gateway).await;
    let hidden = tools_changed(&mut all).await;
    operator.post("/v1/upstream/test/restart", &json!({})).await;
    while all.recv().await["event"] != "documents_changed" {}
    let _demo = Hello::new("demo").tool("demo.echo").connect(&gateway).await;
    // Its first event is the change that it can see.
    let first = narrow.recv().await;
    assert_eq!(first["event"], "tools_changed", "{first}");
    let revision = |frame: &Value| frame["data"]["revision"].as_u64().unwrap();
    assert!(revision(&first) > revision(&hidden), "{first} {hidden}");
    gateway.stop().await;
}

#[tokio::test]
async fn changes_in_a_channel_are_announced_to_tokens_whose_list_changed() {
    let gateway = Setup::new().start().await;
    let mut worker = Participant::join(&gateway, "room", "worker").await;
    let token = json!({
        "name": "narrow", "role": "agent", "tools": ["pubsub_worker_greet"], "channels": ["room"],
    });
    let (_, token) = gateway.token(token).await;
    let mut all = listening(&gateway.operator()).await;
    let mut narrow = listening(&gateway.agent(&token)).await;
    let hidden = json!([{ "name": "hidden" }]);
    worker.update(json!({ "type": "worker", "methods": hidden })).await;
    let hidden = tools_changed(&mut all).await;
    let both = json!([{ "name": "hidden" }, { "name": "greet" }]);
    worker.update(json!({ "type": "worker", "methods": both })).await;
    // Its first event is the change that it can see.
    let first = narrow.recv().await;
    assert_eq!(first["event"], "tools_changed", "{first}");
    let revision = |frame: &Value| frame["data"]["revision"].as_u64().unwrap();
    assert!(revision(&first) > revision(&hidden), "{first} {hidden}");
    gateway.stop().await;
}
