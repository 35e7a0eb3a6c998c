//! A server that others wrote, with another library: the reference server of the protocol's authors.

use std::path::PathBuf;

use sa_testkit::Setup;
use serde_json::json;

use crate::upstream::until;

/// Where `cargo xtask test` has put it.
fn program() -> PathBuf {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let script = "upstream-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let program = target.join(script);
    assert!(program.is_file(), "{} is missing; run: cargo xtask test", program.display());
    program
}

#[tokio::test]
async fn the_reference_server_works_behind_the_gateway() {
    let config = format!("[upstream.everything]\ncommand = {}\n", json!(["node", program(), "stdio"]));
    let gateway = Setup::new().config(&config).start().await;
    until(&gateway, "everything", "ready").await;
    let agent = gateway.operator();
    let said = agent.call("everything__echo", json!({ "message": "hello" })).await.body;
    assert_eq!(said["blocks"][0]["text"], "Echo: hello", "{said}");
    let picture = agent.call("everything__get-tiny-image", json!({})).await.body;
    assert!(picture["blocks"].as_array().unwrap().iter().any(|block| block["type"] == "image"), "{picture}");
    let structured = agent.call("everything__get-structured-content", json!({ "location": "Chicago" })).await.body;
    assert!(structured["result"]["temperature"].is_number(), "{structured}");
    let args = json!({ "args": { "duration": 0.3, "steps": 3 } });
    let mut events = agent.stream("everything__trigger-long-running-operation", args).await;
    let mut steps = 0;
    while let Some((name, _)) = events.next().await {
        steps += usize::from(name == "progress");
    }
    assert_eq!(steps, 3);
    agent.call("everything__echo", json!({ "message": 1 })).await.assert_problem(422, "invalid_args");
}
