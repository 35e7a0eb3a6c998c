//! A task outlives a kill of the gateway.

use sa_gateway_kit::mcp::tasks::{ask, get, start, until};
use sa_gateway_kit::{Hello, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

const SOON: &str = "[mcp]\ntask_after_ms = 50";

#[tokio::test]
async fn a_long_call_is_answered_with_a_handle_and_its_result_is_kept() {
    let mut gateway = Setup::new().config(SOON).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    assert_eq!(get(&gateway, &other, &id).await["error"]["code"], -32602);
    assert_eq!(get(&gateway, &gateway.operator, &id).await["result"]["status"], "working");
    let asked = node.request().await;
    node.answer(&asked.id, json!({ "done": true })).await;
    until(&gateway, &id, "completed").await;
    gateway.kill().await;
    let again = Setup::new().config(SOON).on(&gateway).spawn(SWITCHBOARD).await;
    let task = get(&again, &again.operator, &id).await;
    assert_eq!(task["result"]["result"]["structuredContent"], json!({ "done": true }), "{task}");
    assert_eq!(get(&again, &other, &id).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_task_that_ran_when_the_gateway_died_says_so() {
    let mut gateway = Setup::new().config(SOON).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    node.request().await;
    gateway.kill().await;
    let again = Setup::new().config(SOON).on(&gateway).spawn(SWITCHBOARD).await;
    let task = get(&again, &again.operator, &id).await;
    assert_eq!(task["result"]["status"], "failed", "{task}");
    assert!(
        task["result"]["error"]["message"].as_str().unwrap().contains("restarted while"),
        "{task}"
    );
    // It is still hidden from others, and cannot be cancelled or answered any more.
    let (_, other) = again.token(json!({ "name": "other", "role": "agent" })).await;
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({ "taskId": id, "inputResponses": {} });
        let stolen = ask(&again, &other, method, &id, params.clone()).await;
        assert_eq!(stolen["error"]["code"], -32602, "{method}: {stolen}");
        let own = ask(&again, &again.operator, method, &id, params).await;
        assert!(own.get("result").is_some(), "{method}: {own}");
    }
    assert_eq!(get(&again, &again.operator, &id).await["result"]["status"], "failed");
}
