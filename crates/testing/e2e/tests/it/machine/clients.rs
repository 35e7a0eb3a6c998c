//! The official MCP clients accept the result of every machine tool. With an output schema in the
//! list, they reject a successful result without valid structured content.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sa_gateway_kit::Setup;
use serde_json::{Value, json};

use crate::machine::files::{PNG, machine};
use crate::mcp::peers::{clients, run};

/// Returns each tool with arguments and the expected content blocks.
fn calls(session: &str) -> Vec<(&'static str, Value, &'static [&'static str])> {
    const TEXT: &[&str] = &["text"];
    let process = |action: &str| json!({ "action": action, "sessionId": session, "data": "x" });
    vec![
        ("Read", json!({ "path": "photo.png" }), &["text", "image"]),
        ("Read", json!({ "path": "notes.txt" }), TEXT),
        ("Read", json!({ "path": "notes.txt", "offset": 99 }), TEXT),
        ("Write", json!({ "path": "new.txt", "content": "old" }), TEXT),
        ("Edit", json!({ "path": "new.txt", "oldString": "old", "newString": "new" }), TEXT),
        ("Glob", json!({ "pattern": "*.txt" }), TEXT),
        ("Grep", json!({ "pattern": "lines" }), TEXT),
        ("Bash", json!({ "command": "echo hello; exit 3", "description": "says hello" }), TEXT),
        ("Bash", json!({ "command": "kill -9 $$" }), TEXT),
        ("Bash", json!({ "command": "sleep 1000", "background": true }), TEXT),
        ("Process", json!({ "action": "list" }), TEXT),
        ("Process", process("poll"), TEXT),
        ("Process", process("log"), TEXT),
        ("Process", process("write"), TEXT),
        ("Process", process("submit"), TEXT),
        ("Process", process("kill"), TEXT),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_clients_accept_the_result_of_every_tool() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    machine.file("photo.png", BASE64_STANDARD.decode(PNG).unwrap());
    machine.file("notes.txt", "some lines\n");
    let listed = machine.agent.tool_names().await;
    let listed: BTreeSet<&str> =
        listed.iter().filter_map(|name| name.strip_prefix("box__")).collect();
    let called: BTreeSet<&str> = calls("").iter().map(|(tool, ..)| *tool).collect();
    assert_eq!(called, listed);
    for (name, mut client) in clients(&gateway) {
        let args = json!({ "command": "cat", "background": true });
        let session = machine.agent.call("box__Bash", args).await.result()["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        let calls = calls(&session);
        let sent: Vec<_> =
            calls.iter().map(|(tool, args, _)| json!([format!("box__{tool}"), args])).collect();
        let said = run(&gateway, client.arg(json!(sent).to_string())).await;
        let results = said["results"].as_array().unwrap();
        assert_eq!(results.len(), calls.len(), "{name}");
        for ((tool, args, types), result) in calls.iter().zip(results) {
            assert_eq!(result["types"], json!(types), "{name}, {tool} {args}: {result}");
            assert!(
                result["structured"].is_object() && result["error"] != true,
                "{name}, {tool} {args}: {result}"
            );
            let ignored = &result["meta"]["switchboard/ignored_arguments"];
            assert_eq!(
                *ignored == json!(["description"]),
                args.get("description").is_some(),
                "{name}, {tool}: {result}"
            );
        }
        assert_eq!(results[0]["structured"]["mimeType"], "image/png", "{name}");
    }
}
