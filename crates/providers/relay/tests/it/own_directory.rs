//! Rule: a sandboxed agent with its own directory starts again after the gateway marked its files
//! as secret.

use std::collections::BTreeMap;
use std::time::Duration;

use sa_vault::secret_file;
use serde_json::{Value, json};

use crate::kit::{Kit, SUPERVISOR, principal, supervisor};

#[tokio::test]
async fn an_agent_starts_again_after_the_gateway_marked_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("operator.token"), "").unwrap();
    let script = "read line; mkdir -p deep; echo kept > deep/file; echo \"$line\"";
    let agents: BTreeMap<String, sa_relay::AgentCommand> = serde_json::from_value(
        json!({ "helper": { "command": ["sh", "-c", script], "sandbox": true, "input": "text" } }),
    )
    .unwrap();
    let kit = Kit::with(
        "",
        Duration::ZERO,
        |store| store,
        |options| {
            options.socket_dir = sa_relay::socket_dir(&data).unwrap();
            options.data_dir.clone_from(&data);
            options.agents.clone_from(&agents);
        },
    )
    .await;
    let owner = principal("owner");
    let mut session = Value::Null;
    for round in 0..3 {
        let args = json!({
            "message": format!("round {round}"), "agent": "helper", "session_id": session, "wait_ms": 20_000,
        });
        let answer = kit.call(&owner, "session_message", args).await.unwrap();
        session = answer["session_id"].clone();
        let text = format!("round {round}");
        assert!(answer["events"].to_string().contains(&text), "{answer}");
        secret_file::mark_directory_except(&data, &sa_relay::agent_directories(&data, &agents))
            .unwrap();
        assert!(secret_file::is_marked_path(&data.join("operator.token")));
    }
}

#[test]
fn this_holds_for_an_unprivileged_user() {
    sa_test_needs::repeat_as_nobody(module_path!(), &[(SUPERVISOR, &supervisor())]);
}
