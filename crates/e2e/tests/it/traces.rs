//! One trace spans agent, gateway and node: the span that is exported and the header that the node gets carry the
//! caller's trace id.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use sa_testkit::{Hello, Reply, Setup, soon};
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_call_is_one_span_in_the_callers_trace() {
    let (exported, mut exports) = mpsc::unbounded_channel();
    let receive = move |body: Bytes| async move { exported.send(body.to_vec()).unwrap() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/v1/traces", post(receive))).await.unwrap();
    });
    let config = format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\nservice_name = \"test-gateway\"");
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
    node.answer(&asked.id, serde_json::json!(1)).await;
    assert_eq!(call.await.unwrap().status, 200);
    // An old node is not told, and its call is traced all the same.
    let call = tokio::spawn(Reply::of(request("o.b")));
    let asked = old.request().await;
    assert!(asked.frame.get("traceparent").is_none());
    old.answer(&asked.id, serde_json::json!(1)).await;
    call.await.unwrap();

    // What is still queued goes out before the end.
    gateway.stop().await;
    let mut body = Vec::new();
    while !(holds(&body, b"call a.b") && holds(&body, b"call o.b")) {
        body.extend(soon(exports.recv()).await.expect("the span was never exported"));
    }
    assert!(holds(&body, &bytes(TRACE)), "the caller's trace");
    assert!(holds(&body, &span), "the span that the node was told");
    assert!(holds(&body, &bytes("00f067aa0ba902b7")), "the caller's span is the parent");
    assert!(holds(&body, b"test-gateway"));
    collector.abort();
}

#[tokio::test]
async fn a_dead_collector_hurts_nobody() {
    let gateway = Setup::new().config("[telemetry]\notlp_endpoint = \"http://127.0.0.1:1\"").spawn(SWITCHBOARD).await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    for _ in 0..20 {
        assert_eq!(gateway.operator().call("a.b", serde_json::json!({})).await.status, 200);
    }
    gateway.stop().await;
}
