//! The relay command answers any input of its agent according to JSON-RPC 2.0.

use std::process::Stdio;

use sa_gateway_kit::sessions::session;
use sa_gateway_kit::{Setup, soon};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

#[tokio::test]
async fn a_relay_answers_whatever_its_agent_writes() {
    let gateway = Setup::new().start().await;
    let session = session(&gateway.operator()).await;
    let mut relay = tokio::process::Command::new(crate::SWITCHBOARD);
    relay
        .args(["relay", session["socket"].as_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut relay = relay.kill_on_drop(true).spawn().unwrap();
    let mut stdin = relay.stdin.take().unwrap();
    let mut lines = BufReader::new(relay.stdout.take().unwrap()).lines();
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let initialize =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let huge = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "x": "y".repeat(17 << 20) } });
    let list = r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#;
    for (line, id, code) in [
        ("hello", json!(null), json!(-32700)),
        (&initialize, json!(1), json!(null)),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, json!(null), json!(null)),
        ("[]", json!(null), json!(-32600)),
        (r#"{"id":2,"method":"tools/list"}"#, json!(2), json!(-32600)),
        (&huge.to_string(), json!(3), json!(-32600)),
        (list, json!(4), json!(null)),
    ] {
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        if id.is_null() && code.is_null() {
            continue;
        }
        let answer: Value =
            serde_json::from_str(&soon(lines.next_line()).await.unwrap().unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &code), "{answer}");
    }
    drop(stdin);
    assert!(soon(relay.wait()).await.unwrap().success());
}
