//! A caller that uses the helper only declares functions. The helper calls them, their failures and
//! panics become errors, and a lost connection loses nothing.

use std::process::Stdio;
use std::time::Duration;

use sa_caller::{Caller, Error, Session};
use sa_gateway_kit::{Gateway, RelaySocket, Setup, soon};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

async fn start(
    gateway: &Gateway,
    token: &str,
) -> (Session, RelaySocket, mpsc::UnboundedReceiver<&'static str>) {
    let (say, said) = mpsc::unbounded_channel();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let session = Caller::new(&gateway.url, token, "ant")
        .timeout(Duration::from_secs(30))
        .tool("double", "Doubles", schema, |args| async move {
            Ok(json!(args["n"].as_i64().unwrap_or(0) * 2))
        })
        .tool("fail", "Fails", json!({ "type": "object" }), |_| async { Err("it failed".into()) })
        .tool("panic", "Panics", json!({ "type": "object" }), |_| async { panic!("on purpose") })
        .tool("hang", "Hangs", json!({ "type": "object" }), move |_| {
            let say = say.clone();
            async move {
                let _ = say.send("started");
                let _dropped = Dropped(say);
                std::future::pending().await
            }
        })
        .start("work")
        .await
        .unwrap();
    let agent = RelaySocket::connect(&session.about["socket"]).await;
    (session, agent, said)
}

struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[tokio::test]
async fn functions_are_called_and_what_goes_wrong_is_an_error() {
    let gateway = Setup::new().start().await;
    let (mut session, mut agent, mut said) = start(&gateway, &gateway.operator).await;
    agent.caller_tool(1, "double", json!({ "n": 21 })).await;
    assert_eq!(agent.recv().await["result"], 42);
    agent.caller_tool(2, "fail", json!({})).await;
    assert_eq!(agent.recv().await["error"]["message"], "it failed");
    agent.caller_tool(3, "panic", json!({})).await;
    assert_eq!(agent.recv().await["error"]["message"], "the function panicked");
    // A function is dropped when its call is cancelled.
    agent.caller_tool(4, "hang", json!({})).await;
    assert_eq!(soon(said.recv()).await, Some("started"));
    agent.write(r#"{"jsonrpc":"2.0","method":"cancel","params":{"id":4}}"#).await;
    assert_eq!(soon(said.recv()).await, Some("dropped"));
    assert_eq!(soon(session.next_event()).await.unwrap()["type"], "session_started");
    session.message("more").await.unwrap();
    gateway.operator().delete(&format!("/v1/sessions/{}", session.id)).await;
    soon(session.ended()).await.unwrap();
}

#[tokio::test]
async fn a_caller_learns_that_its_gateway_was_restarted() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (session, mut agent, _) = start(&gateway, &gateway.operator).await;
    agent.caller_tool(1, "double", json!({ "n": 1 })).await;
    assert_eq!(agent.recv().await["result"], 2);
    gateway.kill().await;
    let address = gateway.address().to_owned();
    let gateway = Setup::new().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
    soon(session.ended()).await.unwrap();
    drop(gateway);
}

#[tokio::test]
async fn a_refusal_says_why() {
    let gateway = Setup::new().start().await;
    let refused = Caller::new(&gateway.url, &gateway.operator, "ant")
        .agent("nobody")
        .start("work")
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused { status: 422, kind, .. } if kind == "invalid_args"));
}

#[tokio::test]
async fn callers_in_typescript_have_the_same() {
    let gateway = Setup::new().start().await;
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packages/caller");
    let mut caller = Command::new("node");
    caller.arg("examples/lend.js").args([&gateway.url, &gateway.operator]).current_dir(&package);
    let mut caller = caller
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is needed: cargo xtask test");
    let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
    let about = soon(lines.next_line()).await.unwrap().unwrap();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    let mut agent = RelaySocket::connect(&about["socket"]).await;
    agent.caller_tool(1, "double", json!({ "n": 21 })).await;
    assert_eq!(agent.recv().await["result"], 42);
    agent.caller_tool(2, "ant_fail", json!({})).await;
    assert_eq!(agent.recv().await["error"]["message"], "it failed");
    agent.caller_tool(3, "hang", json!({})).await;
    let path = format!("/v1/sessions/{}", about["session_id"].as_str().unwrap());
    assert_eq!(soon(lines.next_line()).await.unwrap().as_deref(), Some("hanging"));
    agent.write(r#"{"jsonrpc":"2.0","method":"cancel","params":{"id":3}}"#).await;
    assert_eq!(soon(lines.next_line()).await.unwrap().as_deref(), Some("aborted"));
    gateway.operator().delete(&path).await;
    assert_eq!(soon(lines.next_line()).await.unwrap().as_deref(), Some("ended"));
    assert!(soon(caller.wait()).await.unwrap().success());
    let tests =
        Command::new("node").args(["--test", "test/events.test.js"]).current_dir(&package).output();
    let tests = soon(tests).await.unwrap();
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));
}
