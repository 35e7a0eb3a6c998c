//! One trace covers agent, gateway and node. The caller's trace id is in the header that the node
//! receives, in the exported span, in the log, and in the history.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use sa_gateway_kit::{Hello, Reply, SdkNode, Setup, eventually, registry, soon};
use sa_node_sdk::{ToolContext, ToolError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// Starts a collector that forwards the received exports, and returns its address.
async fn collector() -> (String, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (exported, exports) = mpsc::unbounded_channel();
    let receive = move |body: Bytes| async move { exported.send(body.to_vec()).unwrap() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/v1/traces", post(receive))).await.unwrap();
    });
    (endpoint, exports)
}

#[tokio::test]
async fn one_trace_id_leads_to_what_the_node_the_log_the_history_and_the_collector_know() {
    let (endpoint, mut exports) = collector().await;
    let config = format!(
        "[telemetry]\notlp_endpoint = \"{endpoint}\"\n[log]\nfilter = \"info,sa_gateway=debug\""
    );
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let tools = registry("n.work", move |ctx: ToolContext, args: Value| {
        told.send(ctx.traceparent().unwrap_or_default()).unwrap();
        async move {
            if args["fail"] == true { Err(ToolError::Failed("no luck".into())) } else { Ok(args) }
        }
    });
    let node = SdkNode::start(&gateway, "n", tools, |builder| builder).await;
    let traces = [(TRACE, "ok"), ("0af7651916cd43dd8448eb211c80319c", "failed")];
    for (trace, outcome) in traces {
        let request = gateway.operator().request(reqwest::Method::POST, "/v1/tools/n.work/call");
        let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
        let reply =
            Reply::of(request.json(&json!({ "args": { "fail": outcome == "failed" } }))).await;
        assert_eq!(reply.status == 200, outcome == "ok", "{}", reply.text);
        let id = reply.headers["x-call-id"].to_str().unwrap();

        let traceparent = soon(heard.recv()).await.unwrap();
        assert_eq!(traceparent.split('-').nth(1), Some(trace), "the node's context");
        let logged = eventually("the call's line in the log", || async {
            let lines = gateway.stderr();
            let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.find(|line| line["call_id"] == id && line["message"] == "call ended")
        })
        .await;
        assert_eq!(
            (&logged["trace_id"], &logged["outcome"]),
            (&json!(trace), &json!(outcome)),
            "{logged}"
        );
        let one = eventually("the history", || async {
            Some(gateway.operator().get(&format!("/v1/calls/{id}")).await)
                .filter(|reply| reply.status == 200)
        })
        .await;
        assert_eq!(one.body["trace_id"], trace, "{}", one.text);
        let list = gateway.operator().get("/v1/calls?state=ended").await;
        let mut listed = list.body["calls"].as_array().unwrap().iter();
        assert_eq!(
            listed.find(|call| call["id"] == id).unwrap()["trace_id"],
            trace,
            "{}",
            list.text
        );
        let shown = gateway.cli(&["calls", id]).run().await;
        assert!(shown.assert_code(0).stdout.contains(trace), "{}", shown.stdout);
        assert_eq!(
            gateway.cli(&["calls", id, "--json"]).run().await.assert_code(0).json()["trace_id"],
            trace
        );
    }
    node.stop().await;
    gateway.stop().await;
    let mut body = Vec::new();
    for (trace, _) in traces {
        // A span's name follows the id of its trace within a few bytes.
        let near = |body: &[u8]| {
            let at = body.windows(16).position(|part| part == bytes(trace))?;
            holds(&body[at..body.len().min(at + 96)], b"call n.work").then_some(())
        };
        while near(&body).is_none() {
            body.extend(soon(exports.recv()).await.expect("the span was never exported"));
        }
    }
}

#[tokio::test]
async fn a_call_that_runs_says_which_trace_it_is_in() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let request = gateway.operator().request(reqwest::Method::POST, "/v1/tools/a.b/call");
    let call = tokio::spawn(Reply::of(
        request.header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01")),
    ));
    let asked = node.request().await;
    let running = gateway.operator().get("/v1/calls?state=running").await;
    assert_eq!(running.body["calls"][0]["trace_id"], TRACE, "{}", running.text);
    node.answer(&asked.id, json!(1)).await;
    assert_eq!(call.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_call_is_one_span_in_the_callers_trace() {
    let (endpoint, mut exports) = collector().await;
    let config =
        format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\nservice_name = \"test-gateway\"");
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut old = Hello::old("old").capability("o").connect(&gateway).await;

    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let request = |tool: &str| {
        let path = format!("/v1/tools/{tool}/call");
        gateway.operator().request(reqwest::Method::POST, &path).header("traceparent", &parent)
    };
    let call = tokio::spawn(Reply::of(request("a.b")));
    let asked = node.request().await;
    let traceparent = asked.frame["traceparent"].as_str().unwrap();
    let parts: Vec<&str> = traceparent.split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", TRACE, "01"));
    assert_ne!(parts[2], "00f067aa0ba902b7", "the gateway's own span is the node's parent");
    let span = bytes(parts[2]);
    node.answer(&asked.id, json!(1)).await;
    assert_eq!(call.await.unwrap().status, 200);
    // An old node gets no trace context, but its call is traced.
    let call = tokio::spawn(Reply::of(request("o.b")));
    let asked = old.request().await;
    assert!(asked.frame.get("traceparent").is_none());
    old.answer(&asked.id, json!(1)).await;
    call.await.unwrap();

    // Queued spans are exported before the shutdown completes.
    gateway.stop().await;
    let mut body = Vec::new();
    while !(holds(&body, b"call a.b") && holds(&body, b"call o.b")) {
        body.extend(soon(exports.recv()).await.expect("the span was never exported"));
    }
    assert!(holds(&body, &bytes(TRACE)), "the caller's trace");
    assert!(holds(&body, &span), "the span that the node was told");
    assert!(holds(&body, &bytes("00f067aa0ba902b7")), "the caller's span is the parent");
    assert!(holds(&body, b"test-gateway"));
}

#[tokio::test]
async fn a_dead_collector_hurts_nobody() {
    let gateway = Setup::new()
        .config("[telemetry]\notlp_endpoint = \"http://127.0.0.1:1\"")
        .spawn(SWITCHBOARD)
        .await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    for _ in 0..20 {
        assert_eq!(gateway.operator().call("a.b", json!({})).await.status, 200);
    }
    gateway.stop().await;
}
