//! A call ends with its client, and a stopping gateway answers all accepted calls, in every
//! protocol path.

use sa_gateway_kit::mcp::{Ask, Era, connect, request, value};
use sa_gateway_kit::{FakeNode, Gateway, Hello, Setup, eventually};
use serde_json::json;

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    for unusual in [false, true] {
        let ask = Ask::new(&gateway, "slow_work", "{}");
        let open = raw(gateway.address(), &ask, unusual).await;
        let request = node.request().await;
        drop(open);
        node.cancelled(&request).await;
        eventually("the call to be gone", || async {
            (gateway.running_calls().await == 0).then_some(())
        })
        .await;
    }
}

/// Sends a request on a connection that the test can drop.
async fn raw(address: &str, ask: &Ask, unusual: bool) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt as _;
    let body = ask.body(unusual);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: {}\r\ncontent-length: {}\r\n\r\n{body}",
        ask.token,
        ask.name,
        body.len(),
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_gateway_that_stops_lets_the_call_end() {
    for unusual in [false, true] {
        let gateway = Setup::new().start().await;
        let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
        let ask = Ask::new(&gateway, "slow_work", "{}");
        let ((status, _, body), ()) =
            tokio::join!(ask.send(&gateway, unusual), answer_while_it_stops(&gateway, &mut node));
        assert_eq!(status, 200, "{unusual}: {body}");
        assert!(body.contains("drained"), "{unusual}: {body}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_gateway_that_stops_lets_the_call_of_a_session_end_too() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let client = connect(&gateway, &gateway.operator, "", Era::Sessions, ()).await.unwrap();
    let call = client.call_tool(request("slow_work", json!({})));
    let (answer, ()) = tokio::join!(call, answer_while_it_stops(&gateway, &mut node));
    assert_eq!(value(&answer.unwrap())["content"][0]["text"], "drained");
    gateway.stop().await;
}

async fn answer_while_it_stops(gateway: &Gateway, node: &mut FakeNode) {
    let request = node.request().await;
    gateway.begin_stop();
    node.answer(&request.id, json!("drained")).await;
}

#[tokio::test]
async fn a_gateway_that_stops_cancels_what_takes_too_long() {
    let mut bodies = Vec::new();
    for unusual in [false, true] {
        let gateway = Setup::new().config("[server]\ndrain_ms = 100").start().await;
        let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
        let ask = Ask::new(&gateway, "slow_work", "{}");
        let stopped = async {
            let request = node.request().await;
            gateway.begin_stop();
            assert_eq!(node.cancelled(&request).await, "shutdown");
        };
        let (answer, ()) = tokio::join!(ask.send(&gateway, unusual), stopped);
        bodies.push(answer);
        gateway.stop().await;
    }
    assert_eq!(bodies[0], bodies[1]);
}
