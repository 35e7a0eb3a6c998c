//! A long call becomes a task, which outlives its client and the gateway, and is visible only to
//! its principal.

use sa_core::{Output, Passthrough, Question, RawJson, Scope, Tool};
use sa_testkit::mcp::attach;
use sa_testkit::mcp::tasks::{ask, start, until};
use sa_testkit::{Hello, Setup};
use serde_json::json;

const SOON: &str = "[mcp]\ntask_after_ms = 50";

#[tokio::test]
async fn a_task_is_cancelled_by_its_principal_alone() {
    let gateway = Setup::new().config(SOON).start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    let asked = node.request().await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    let stolen = ask(&gateway, &other, "tasks/cancel", &id, json!({ "taskId": id })).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let taken =
        ask(&gateway, &gateway.operator, "tasks/cancel", &id, json!({ "taskId": id })).await;
    assert!(taken.get("result").is_some(), "{taken}");
    node.cancelled(&asked).await;
    until(&gateway, &id, "cancelled").await;
}

#[tokio::test]
async fn a_task_asks_and_takes_the_answer() {
    let gateway = Setup::new().config(SOON).start().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let _requester = attach(
        &gateway.inner().router,
        "requester",
        Scope::Everyone,
        vec![Tool::named("ask")],
        move |_, updates| {
            let mut gone = gone.clone();
            Box::pin(async move {
                gone.wait_for(|go| *go).await.unwrap();
                let params = json!({ "message": "Name?", "requestedSchema": { "type": "object", "properties": {} } });
                let question = Question {
                    kind: "elicitation/create".into(),
                    params: Passthrough::new("mcp", RawJson::of(&params)),
                };
                Ok(Output::json(updates.ask(question).await?))
            })
        },
    );
    let id = start(&gateway, "ask").await;
    go.send(true).unwrap();
    let task = until(&gateway, &id, "input_required").await;
    let name = task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({ name: { "action": "accept", "content": { "name": "Ada" } } });
    let update = json!({ "taskId": id, "inputResponses": answers });
    ask(&gateway, &gateway.operator, "tasks/update", &id, update).await;
    let task = until(&gateway, &id, "completed").await;
    assert_eq!(task["result"]["structuredContent"]["content"]["name"], "Ada", "{task}");
}
