//! Unread answers share one budget for all connections, and are stored only for a limited time.

use reqwest::Method;
use sa_gateway_kit::{Gateway, Hello, Setup, eventually, soon};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::SWITCHBOARD;

/// More than a connection buffers when its client does not read, so most of it stays in the
/// gateway.
const LARGE: usize = 12_000_000;

/// Connects a node with large results for every call.
async fn large_results(gateway: &Gateway) -> JoinHandle<()> {
    let mut node = Hello::new("n").capability("a").connect(gateway).await;
    tokio::spawn(async move {
        let large = json!("x".repeat(LARGE));
        loop {
            let request = node.request().await;
            node.answer(&request.id, large.clone()).await;
        }
    })
}

/// Makes a call and waits for the beginning of the answer, but reads nothing.
async fn unread(gateway: &Gateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = soon(socket.connect(gateway.address().parse().unwrap())).await.unwrap();
    let token = std::fs::read_to_string(gateway.data_dir().join("operator.token")).unwrap();
    let request = format!(
        "POST /v1/tools/a.b/call HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-length: 2\r\n\r\n{{}}",
        gateway.address(),
        token.trim()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    soon(stream.peek(&mut [0])).await.unwrap();
    stream
}

#[tokio::test]
async fn who_finds_no_room_for_a_large_answer_is_told_so() {
    let gateway =
        Setup::new().config("[limits]\nanswer_bytes = 20_000_000").spawn(SWITCHBOARD).await;
    let answers = large_results(&gateway).await;
    let mut first = unread(&gateway).await;
    let operator = gateway.operator();
    let refused = operator.call("a.b", json!({})).await;
    refused.assert_problem(503, "overloaded");
    assert_eq!(
        (&refused.body["retryable"], refused.headers.get("retry-after")),
        (&json!(false), None)
    );
    // The call was made and is recorded.
    let id = refused.body["call_id"].as_str().unwrap();
    assert_eq!(refused.headers["x-call-id"], id);
    assert_eq!(operator.get(&format!("/v1/calls/{id}")).await.body["ok"], true);
    assert_eq!(gateway.refused("http", "no_room").await, 1);
    // A stream waits for the budget.
    let mut events = operator.request(Method::POST, "/v1/tools/a.b/call").json(&json!({}));
    events = events.header("accept", "text/event-stream");
    let mut stream = soon(events.send()).await.unwrap();

    // The first answer is complete, and releases its budget once it has been read.
    let mut answer = Vec::new();
    soon(first.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > LARGE, "{} bytes", answer.len());
    let mut streamed = 0;
    while let Some(part) = soon(stream.chunk()).await.unwrap() {
        streamed += part.len();
    }
    assert!(streamed > LARGE, "{streamed} bytes");
    let later = operator.call("a.b", json!({})).await;
    assert_eq!(later.result().as_str().map(str::len), Some(LARGE));
    answers.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn who_takes_nothing_for_too_long_is_hung_up_on_and_who_waits_is_not() {
    let config = "[nodes]\nping_interval_ms = 300\ndead_after_ms = 2_000\n[limits]\nanswer_bytes = 20_000_000";
    let gateway = Setup::new().config(config).spawn(SWITCHBOARD).await;
    let answers = large_results(&gateway).await;
    let operator = gateway.operator();
    // A stream that is idle for the same time.
    let mut feed = operator.events("/v1/events?watch=true").await;
    let mut deaf = unread(&gateway).await;
    while feed.next().await.unwrap().0 != "call_ended" {}
    eventually("it counted", || async {
        (gateway.refused("http", "reads_nothing").await == 1).then_some(())
    })
    .await;
    let mut answer = Vec::new();
    let _ = soon(deaf.read_to_end(&mut answer)).await;
    assert!(answer.len() < LARGE, "{} bytes", answer.len());
    // The unread rest was discarded, and its budget is free.
    let reply = operator.call("a.b", json!({})).await;
    assert_eq!(reply.result().as_str().map(str::len), Some(LARGE));
    assert_eq!(feed.next().await.unwrap().0, "call_started");
    assert_eq!(gateway.refused("http", "reads_nothing").await, 1);
    answers.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn what_sockets_have_not_read_shares_the_room_and_who_finds_none_is_closed() {
    let gateway =
        Setup::new().config("[limits]\nanswer_bytes = 20_000_000").spawn(SWITCHBOARD).await;
    let answers = large_results(&gateway).await;
    let (first, second) = (gateway.new_agent("first").await, gateway.new_agent("second").await);
    let (mut deaf, mut other) = (first.socket().await, second.socket().await);
    deaf.call("1", "a.b", json!({})).await;
    // Its answer has begun to arrive.
    soon(deaf.socket.get_ref().peek(&mut [0])).await.unwrap();
    other.call("1", "a.b", json!({})).await;
    let (code, reason) = other.closed().await;
    assert!(code == 1013 && reason.contains("used up"), "{code} {reason}");
    eventually("it counted", || async {
        (gateway.refused("calls_ws", "no_room").await == 1).then_some(())
    })
    .await;
    // This answer shares the budget with other answers.
    gateway.operator().call("a.b", json!({})).await.assert_problem(503, "overloaded");
    // The first answer is complete, and releases its budget once it has been read.
    assert_eq!(deaf.wait_for("done", "1").await["result"].as_str().map(str::len), Some(LARGE));
    let mut again = second.socket().await;
    again.call("1", "a.b", json!({})).await;
    assert_eq!(again.wait_for("done", "1").await["result"].as_str().map(str::len), Some(LARGE));
    answers.abort();
    gateway.stop().await;
}
