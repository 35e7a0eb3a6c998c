//! A gateway under a memory limit survives more large requests at once than its memory can hold.

use std::time::Duration;

use reqwest::Method;
use sa_test_needs::MemoryGroup;
use sa_testkit::{Hello, Setup};
use serde_json::json;
use tokio::task::JoinSet;

use crate::SWITCHBOARD;

const LIMIT: u64 = 1_000_000_000;
const REQUESTS: usize = 120;
const BYTES: usize = 3_900_000;
/// The test takes seconds, but minutes on a busy machine.
const TIME: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_large_requests_of_one_token_leave_the_gateway_alive_and_its_operator_served() {
    let Some(group) = MemoryGroup::new(LIMIT) else { return };
    let scripts = tempfile::tempdir().unwrap();
    let program = group.wrapping(SWITCHBOARD, scripts.path());
    let config = "[limits]\npending_per_node = 200\nqueue_wait_ms = 60_000";
    let gateway = Setup::new().config(config).spawn(program.to_str().unwrap()).await;
    let status = gateway.operator().get("/v1/status").await.body;
    assert_eq!(
        status["memory_limit_bytes"].as_u64().map(|bytes| bytes / 1_000_000),
        Some(LIMIT / 1_000_000 - 1)
    );

    // The node accepts every request, and sends equally large answers once no more requests arrive.
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let answers = tokio::spawn(async move {
        let large = json!("y".repeat(BYTES));
        loop {
            let mut taken = vec![node.request().await];
            while let Ok(next) = tokio::time::timeout(Duration::from_secs(2), node.request()).await
            {
                taken.push(next);
            }
            for request in taken {
                node.answer(&request.id, large.clone()).await;
            }
        }
    });
    let greedy = gateway.new_agent("greedy").await;
    let body = format!("{{\"args\":{{\"x\":\"{}\"}}}}", "x".repeat(BYTES));
    let values = vec!["0123456789"; BYTES / 16].join("\",\"");
    let message = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"a.b\",\"arguments\":{{\"x\":[\"{values}\"]}}}}}}"
    );
    let mut storm = JoinSet::new();
    for (path, body) in
        [("/v1/tools/a.b/call", &body), ("/mcp", &message)].into_iter().cycle().take(REQUESTS)
    {
        let request = greedy.request(Method::POST, path).body(body.clone()).timeout(TIME);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        storm.spawn(async move {
            let reply = request.send().await.ok()?;
            let status = reply.status().as_u16();
            reply.text().await.ok().map(|text| (status, text))
        });
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(reply) = storm.join_next().await {
        match reply.unwrap() {
            Some((200, _)) => served += 1,
            Some((429 | 503, text)) => {
                refused += 1;
                assert!(text.contains("overloaded") && text.contains("bytes"), "{text}");
            }
            // A client that is refused while it is still sending may miss the answer.
            other => assert!(other.is_none_or(|(status, _)| status == 408), "an unexpected answer"),
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");

    // The process is the same, all budgets are free again, and the operator is served.
    let status = gateway.operator().get("/v1/status").await;
    assert_eq!(status.status, 200, "{}", status.text);
    let used = status.body["budgets"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|budget| budget["name"] != "node_hellos");
    let used: Vec<_> = used.filter(|budget| budget["used"].as_u64() > Some(1_000)).collect();
    assert!(used.is_empty(), "{used:?}");
    answers.abort();
    gateway.stop().await;
}
