//! A large answer delays no other request, in any protocol, even though the gateway has one thread
//! for all connections. A tool list is never longer than a page, however long the descriptions are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::Method;
use sa_gateway_kit::upstream::{HttpServer, until};
use sa_gateway_kit::{FakeNode, Gateway, Hello};
use serde_json::{Value, json};

use crate::limits::large_messages::{answer_all, assert_share, crowd, items, share_beside, with};
use crate::upstream::server::stdio;

const ERA: &str = "2026-07-28";

/// An MCP client that reads answers as text, so that parsing does not slow it down.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
    session: Option<String>,
    ids: Arc<AtomicU64>,
}

impl Client {
    fn new(gateway: &Gateway) -> Self {
        let (url, token) = (format!("{}/mcp", gateway.url), gateway.operator.clone());
        Self { http: reqwest::Client::new(), url, token, session: None, ids: Arc::default() }
    }

    /// Returns a client of an older revision, with a session.
    async fn in_session(gateway: &Gateway) -> Self {
        let mut client = Self::new(gateway);
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
        let opened = client.send("initialize", params, true).await;
        client.session = Some(opened.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        client.send("notifications/initialized", json!({}), false).await;
        client
    }

    async fn send(&self, method: &str, mut params: Value, is_request: bool) -> reqwest::Response {
        let request = self.http.post(&self.url).bearer_auth(&self.token);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None if method == "initialize" => request,
            None => {
                params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": ERA,
                    "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
                    "io.modelcontextprotocol/clientCapabilities": {} });
                let named = params["name"].as_str().map(|name| ("mcp-name", name.to_owned()));
                let request =
                    request.header("mcp-protocol-version", ERA).header("mcp-method", method);
                named
                    .into_iter()
                    .fold(request, |request, (header, name)| request.header(header, name))
            }
        };
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if is_request {
            // Concurrent requests in a session need different ids.
            message["id"] = json!(self.ids.fetch_add(1, Ordering::Relaxed));
        }
        let answer = request.json(&message).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        answer
    }

    async fn call(&self, tool: &str) -> String {
        self.send("tools/call", json!({ "name": tool, "arguments": {} }), true)
            .await
            .text()
            .await
            .unwrap()
    }

    async fn list(&self, cursor: Option<&str>) -> String {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        self.send("tools/list", params, true).await.text().await.unwrap()
    }
}

/// Returns how many times the gateway processed the whole answer in offloaded work: reading,
/// checking, writing.
async fn passes(gateway: &Gateway, answer: impl Future<Output = String>) -> f64 {
    let done = async || gateway.metric("switchboard_large_work_bytes_total").await;
    let before = done().await;
    let answer = answer.await;
    assert!(answer.len() > 1_000_000, "{answer}");
    (done().await - before) as f64 / answer.len() as f64
}

#[tokio::test]
async fn large_mcp_results_step_aside_at_each_step() {
    let gateway = with("").await;
    let plain = items(25_000);
    // A result with MCP content blocks is parsed into a tree and passes through the library.
    let blocks = json!({ "content": [{ "type": "text", "text": "x" }], "more": plain });
    // A plain result is read once and forwarded as text. A tree is also serialised, and in a
    // session the library adds one more step.
    for (way, result, least) in
        [("plain", &plain, 0.9), ("blocks", &blocks, 1.9), ("session", &blocks, 2.9)]
    {
        let node = Hello::new(way).capability(way).connect(&gateway).await;
        let node = answer_all(node, result.to_string());
        let client = if way == "session" {
            Client::in_session(&gateway).await
        } else {
            Client::new(&gateway)
        };
        let passes = passes(&gateway, client.call(&format!("{way}.b"))).await;
        assert!(passes > least, "{way}: {passes:.2} times, not {least}");
        node.abort();
    }
    gateway.stop().await;
}

/// Connects a node with very long tool descriptions.
async fn talkative(gateway: &Gateway, tools: u32) -> FakeNode {
    let property = |n: u32| (format!("p{n}"), json!({ "type": "string", "enum": ["a", "b", "c"] }));
    let fat = json!({ "type": "object", "properties": (0..1_000).map(property).collect::<serde_json::Map<_, _>>() });
    let describe = |hello: Hello, n: u32| {
        hello.describe(json!({ "name": format!("a.t{n:02}"), "input_schema": fat }))
    };
    (0..tools).fold(Hello::new("n").capability("a"), describe).connect(gateway).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_of_tools_hold_nobody_up() {
    let gateway = with("").await;
    let other = gateway.new_agent("other").await;
    let _node = talkative(&gateway, 40).await;
    let client = Client::new(&gateway);
    let work = crowd(|| {
        let client = client.clone();
        async move {
            for _ in 0..8 {
                client.list(None).await;
            }
        }
    });
    assert_share(share_beside(&other, work).await, "long lists of MCP");
    let operator = Arc::new(gateway.operator());
    let work = crowd(|| {
        let operator = Arc::clone(&operator);
        async move {
            for _ in 0..8 {
                operator.get_text("/v1/tools?limit=1000").await;
            }
        }
    });
    assert_share(share_beside(&other, work).await, "long lists of REST");
    gateway.stop().await;
}

#[tokio::test]
async fn a_long_list_comes_in_pages_and_nothing_is_missing() {
    let gateway = with("").await;
    let _node = talkative(&gateway, 60).await;
    let client = Client::new(&gateway);
    let (mut names, mut pages, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let page = client.list(cursor.as_deref()).await;
        assert!(page.len() < (1 << 20) + (128 << 10), "{} bytes on one page", page.len());
        let page: Value = serde_json::from_str(&page).unwrap();
        let tools = page["result"]["tools"].as_array().unwrap();
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        cursor = page["result"]["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert!(names.is_sorted() && pages > 1, "{pages} pages");
    names.retain(|name| name.starts_with("a_t"));
    assert_eq!(names.len(), 60, "{names:?}");
    let page = gateway.operator().get_text("/v1/tools?limit=1000").await;
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["next_cursor"], Value::Null, "what is not too long is on one page");
    gateway.stop().await;
}

#[tokio::test]
async fn large_results_of_servers_step_aside_at_each_step() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (
        HttpServer::start(crate::upstream::server::SERVER, "127.0.0.1:0", "old").await,
        HttpServer::start(crate::upstream::server::SERVER, "127.0.0.1:0", "new").await,
    );
    let web = |name: &str, server: &HttpServer| {
        format!("[upstream.{name}]\nurl = \"{}/mcp\"\n", server.url)
    };
    let config = stdio("piped", &[], dir.path(), "") + &web("streamed", &old) + &web("whole", &new);
    let gateway = with(&config).await;
    for name in ["piped", "streamed", "whole"] {
        until(&gateway, name, "ready").await;
        let call =
            gateway.operator().request(Method::POST, &format!("/v1/tools/{name}__media/call"));
        let call = call.json(&json!({ "args": { "items": 25_000 } }));
        let passes =
            passes(&gateway, async { call.send().await.unwrap().text().await.unwrap() }).await;
        // Parsed as a message and as a result, converted to an outcome, recorded, and serialised.
        assert!(passes > 4.4, "{name}: {passes:.2} times");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_schemas_hold_nobody_up() {
    let gateway = with("").await;
    let property = |n: u32| {
        (
            format!("p{n}"),
            json!({ "type": "string", "pattern": format!("^[a-f]{{1,{}}}(x|y)$", 50 + n) }),
        )
    };
    let costly = json!({ "type": "object", "properties": (0..150).map(property).collect::<serde_json::Map<_, _>>() });
    let describe = |hello: Hello, n: u32| {
        hello.describe(json!({ "name": format!("a.t{n}"), "input_schema": costly }))
    };
    let _node = (0..8).fold(Hello::new("n").capability("a"), describe).connect(&gateway).await;
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    let work = async {
        // Each schema is compiled at the tool's first call.
        let calls: Vec<_> = (0..8)
            .map(|n| busy.call_later(&format!("a.t{n}"), json!({ "args": { "p1": "z" } })))
            .collect();
        for call in calls {
            call.await.unwrap().assert_problem(422, "invalid_args");
        }
    };
    assert_share(share_beside(&other, work).await, "schemas that are compiled");
    gateway.stop().await;
}
