//! Connects and disconnects clients of every kind, mostly in the middle of an operation.

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use rmcp::model::SubscriptionFilter;
use sa_gateway_kit::mcp::raw::{INITIALIZE, open, post, stream};
use sa_gateway_kit::mcp::{ERAS, Era, connect, names, request};
use sa_gateway_kit::sessions::{answer, id, session};
use sa_gateway_kit::upstream::{HttpServer, until};
use sa_gateway_kit::{Agent, Gateway, Hello, Participant, RawHttp, RelaySocket, eventually, soon};
use serde_json::json;
use tokio::task::JoinSet;

use crate::upstream::server::SERVER;

/// The clients that come and go. Tokens are created once, because the gateway keeps them.
pub(crate) struct Churn {
    agents: Vec<String>,
    servers: [HttpServer; 2],
    _residents: JoinSet<()>,
}

/// The index of the upstream server that is a program; the other two use HTTP.
const STDIO: usize = 2;

/// The number of rounds with new names of nodes and channels. The gateway remembers a bounded
/// number of tool definitions and names of deleted channels. With new names in every round, a run
/// would end long before these limits are reached.
const NAMES: usize = 20;

impl Churn {
    pub(crate) async fn new(gateway: &Gateway, width: usize) -> Self {
        let mut agents = Vec::new();
        for n in 0..3 {
            agents.push(
                gateway.token(json!({ "name": format!("agent-{n}"), "role": "agent" })).await.1,
            );
        }
        let servers = [
            HttpServer::start(crate::upstream::server::SERVER, "127.0.0.1:0", "old").await,
            HttpServer::start(crate::upstream::server::SERVER, "127.0.0.1:0", "new").await,
        ];
        // The housekeeping removes a channel without participants, so one participant stays.
        let mut residents = JoinSet::new();
        for n in 0..width {
            let mut resident =
                Participant::join(gateway, &lasting(n), &format!("resident-{n}")).await;
            residents.spawn(async move { while let Some(Ok(_)) = resident.socket.next().await {} });
        }
        let churn = Self { agents, servers, _residents: residents };
        // With its first child program, the gateway starts a supervisor process that ends such
        // programs if the gateway dies.
        churn.upstreams(gateway, STDIO).await;
        churn
    }

    /// Runs all operations at once, `width` times. When this function returns, all clients have
    /// left or will leave soon.
    pub(crate) async fn round(&self, gateway: &Gateway, round: usize, width: usize) {
        let one = |n: usize| async move {
            tokio::join!(
                Box::pin(calls(gateway, round, n)),
                Box::pin(self.mcp_clients(gateway, n)),
                Box::pin(participants(gateway, round, n)),
                Box::pin(self.callers(gateway)),
                Box::pin(self.upstreams(gateway, n)),
                Box::pin(half_requests(gateway)),
            );
        };
        join_all((0..width).map(one)).await;
    }

    fn token(&self, n: usize) -> &str {
        &self.agents[n % self.agents.len()]
    }

    /// MCP clients of old and new revisions that disconnect without notice: before a request,
    /// during a call, and while they listen.
    async fn mcp_clients(&self, gateway: &Gateway, n: usize) {
        let tool = format!("mcp{n}.wait");
        let mut node = Hello::new(&format!("mcp-{n}")).tool(&tool).connect(gateway).await;
        let (token, name) = (self.token(n), tool.replace('.', "_"));
        for _ in 0..3 {
            open(gateway, token).await;
        }
        drop(post(gateway, token, INITIALIZE).send().await.unwrap());
        let listening = open(gateway, token).await;
        drop(stream(gateway, token, &listening).send().await.unwrap());
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": name } }).to_string();
        // On a slow machine a session may end between two requests.
        let (left, asked) = loop {
            let session = open(gateway, token).await;
            let mut left =
                tokio::spawn(post(gateway, token, &call).header("mcp-session-id", session).send());
            tokio::select! {
                asked = node.request() => break (left, asked),
                refused = &mut left => assert_eq!(refused.unwrap().unwrap().status(), 404),
            }
        };
        left.abort();
        node.cancelled(&asked).await;
        for era in ERAS {
            let client = connect(gateway, token, "", era, ()).await.unwrap();
            assert!(names(&client).await.contains(&name));
            if era == Era::Sessions {
                // Disconnected without notice.
                continue;
            }
            let news = client
                .listen(SubscriptionFilter::builder().tools_list_changed().build())
                .await
                .unwrap();
            drop(news);
            let call = request(name.clone(), json!({}));
            let call = tokio::spawn(async move { client.call_tool(call).await.map(drop) });
            let asked = node.request().await;
            call.abort();
            node.cancelled(&asked).await;
        }
    }

    /// Callers that lend tools and disconnect, and agents that disconnect during a call of such a
    /// tool.
    async fn callers(&self, gateway: &Gateway) {
        let caller = gateway.operator();
        let opened = session(&caller).await;
        let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&opened))).await;
        let mut agent = RelaySocket::connect(&opened["socket"]).await;
        agent.caller_tool(1, "recall", json!({})).await;
        let asked = events.wait_for("caller_tool_request").await;
        answer(&caller, &asked, json!({ "result": 1 })).await;
        agent.recv().await;
        agent.caller_tool(2, "recall", json!({})).await;
        events.wait_for("caller_tool_request").await;
        drop(agent);
        // The next agent's call outlives its caller by the grace period.
        let mut agent = RelaySocket::connect(&opened["socket"]).await;
        agent.caller_tool(3, "recall", json!({})).await;
        events.wait_for("caller_tool_request").await;
        drop(events);
        agent.recv().await;
        assert_eq!(caller.delete(&format!("/v1/sessions/{}", id(&opened))).await.status, 200);
    }

    /// Upstream servers that are added and removed, over HTTP with old and new revisions and over
    /// stdio, with unfinished calls.
    async fn upstreams(&self, gateway: &Gateway, n: usize) {
        let operator = gateway.operator();
        let name = format!("up{n}");
        let about = match n % 3 {
            STDIO => json!({ "name": name, "command": [SERVER] }),
            era => json!({ "name": name, "url": format!("{}/mcp", self.servers[era].url) }),
        };
        let added = operator.post("/v1/upstream", &about).await;
        assert!(added.status < 300, "{}", added.text);
        until(gateway, &name, "ready").await;
        for token in &self.agents {
            let echo = gateway
                .agent(token)
                .call(&format!("{name}__echo"), json!({ "text": "a" }))
                .await
                .result();
            assert_eq!(echo["text"], "a");
        }
        for era in ERAS {
            let client = connect(gateway, self.token(n), "", era, ()).await.unwrap();
            assert!(names(&client).await.contains(&format!("{name}__echo")));
        }
        let tool = format!("{name}__wait");
        let left = operator.call_later(&tool, json!({ "args": {} }));
        running(&operator, &tool).await;
        left.abort();
        assert_eq!(operator.delete(&format!("/v1/upstream/{name}")).await.status, 200);
    }
}

async fn running(operator: &Agent, tool: &str) -> String {
    eventually("the call to run", || async {
        let calls = operator.get(&format!("/v1/calls?state=running&tool={tool}")).await.body;
        calls["calls"].get(0).map(|call| call["id"].as_str().unwrap().to_owned())
    })
    .await
}

/// Connects a node, ends its calls in every possible way, and disconnects it during the last one.
async fn calls(gateway: &Gateway, round: usize, n: usize) {
    let tool = format!("calls{n}.work");
    let mut node = Hello::new(&format!("calls-{n}")).tool(&tool).connect(gateway).await;
    let operator = gateway.operator();
    // Calls that are answered, over HTTP and over the WebSocket for calls.
    let call = operator.call_later(&tool, json!({ "args": { "n": 1 } }));
    let asked = node.request().await;
    node.answer(&asked.id, json!("x".repeat(20_000))).await;
    call.await.unwrap().result();
    let mut socket = operator.socket().await;
    socket.call("1", &tool, json!({})).await;
    let asked = node.request().await;
    node.answer(&asked.id, json!(1)).await;
    socket.wait_for("done", "1").await;
    // Calls that the client abandons: over HTTP, as an event stream, and on the WebSocket for
    // calls. A call with a key continues.
    let call = operator.call_later(&tool, json!({}));
    let asked = node.request().await;
    call.abort();
    node.cancelled(&asked).await;
    let events = operator.stream(&tool, json!({})).await;
    let asked = node.request().await;
    drop(events);
    node.cancelled(&asked).await;
    socket.call("2", &tool, json!({})).await;
    let asked = node.request().await;
    socket.send(json!({ "type": "cancel", "id": "2" })).await;
    node.cancelled(&asked).await;
    socket.call("3", &tool, json!({})).await;
    let asked = node.request().await;
    let key = format!("{round}-{n}");
    socket
        .send(
            json!({ "type": "call", "id": "4", "tool": tool, "args": {}, "idempotency_key": key }),
        )
        .await;
    let kept = node.request().await;
    drop(socket);
    node.cancelled(&asked).await;
    node.answer(&kept.id, json!("kept")).await;
    // Calls that are cancelled by id, time out, or end with the node's connection.
    let call = operator.call_later(&tool, json!({}));
    let asked = node.request().await;
    cancel(&operator, &tool).await;
    node.cancelled(&asked).await;
    assert_ne!(call.await.unwrap().status, 200);
    let call = operator.call_later(&tool, json!({ "timeout_ms": 100 }));
    call.await.unwrap().assert_problem(504, "timeout");
    let follower = operator.follow().await;
    let call = operator.call_later(&tool, json!({ "args": { "last": true } }));
    // On a slow machine the previous call may not have reached the node.
    while node.recv().await["args"]["last"] != true {}
    drop(node);
    call.await.unwrap().assert_problem(503, "offline");
    drop(follower);
    // A node that never connected before, as long as names are new. It does not reconnect in this
    // round.
    let round = round % NAMES;
    drop(
        Hello::new(&format!("once-{round}-{n}"))
            .tool(&format!("once{round}x{n}.work"))
            .connect(gateway)
            .await,
    );
}

async fn cancel(operator: &Agent, tool: &str) {
    let id = running(operator, tool).await;
    let reply = operator.delete(&format!("/v1/calls/{id}")).await;
    assert!(reply.status < 300, "{}", reply.text);
}

fn lasting(n: usize) -> String {
    format!("lasting-{n}")
}

/// Participants in a lasting channel, one of which does not read, and in a channel that exists only
/// for a moment.
async fn participants(gateway: &Gateway, round: usize, n: usize) {
    let (lasting, passing) = (lasting(n), format!("passing-{}-{n}", round % NAMES));
    for channel in [&lasting, &passing] {
        let mut writer = Participant::join(gateway, channel, &format!("writer-{n}")).await;
        let _reader = Participant::join(gateway, channel, &format!("reader-{n}")).await;
        let token = Participant::token(gateway, &format!("deaf-{n}")).await;
        let path = format!("/v1/channels/ws?token={token}&channel={channel}");
        let _deaf = Participant::connect_narrowly(gateway, &path).await;
        let follower = gateway.operator().events(&format!("/v1/channels/{channel}/events")).await;
        writer.say("note", json!({ "round": round })).await;
        writer.update(json!({ "round": round })).await;
        for _ in 0..20 {
            let large =
                json!({ "type": "blob", "payload": { "x": "x".repeat(50_000) }, "persist": false });
            let sent = writer.publish_as(large).await;
            writer.answer(sent).await;
        }
        drop(follower);
    }
    let operator = gateway.operator();
    eventually("the passing channel to be empty", || async {
        let reply = operator.delete(&format!("/v1/channels/{passing}")).await;
        (reply.status < 300).then_some(())
    })
    .await;
}

/// Requests that are never completed, and connections that never send anything.
async fn half_requests(gateway: &Gateway) {
    let _silent = RawHttp::connect(gateway).await;
    let mut half_a_head = RawHttp::connect(gateway).await;
    half_a_head.write("POST /v1/tools/a/call HTTP/1.1\r\nhost: ").await;
    let mut half_a_body = RawHttp::connect(gateway).await;
    let head = format!(
        "POST /v1/tools/a/call HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        gateway.address(),
        gateway.operator
    );
    half_a_body.write(&head).await;
    let _no_hello = sa_gateway_kit::FakeNode::upgrade(gateway, "").await.unwrap();
    // Waits until the gateway has seen all of them.
    soon(gateway.operator().get("/healthz")).await;
}
