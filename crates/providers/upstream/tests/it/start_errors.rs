//! An unreachable upstream server is reported in one plain sentence: the problem, its cause, and
//! the fix, without type names.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use sa_testkit::upstream::upstream;
use sa_testkit::{PluginAnswer, PluginServer, Setup, eventually};
use serde_json::{Value, json};

use crate::serve::Serve as _;

/// Words that must not appear in a message for operators.
const OURS: [&str; 12] = [
    "Transport",
    "rmcp",
    "Rmcp",
    "reqwest",
    "hyper",
    "::",
    "Error(",
    "Some(",
    "Client error",
    "os error",
    "JsonRpc",
    "SSE",
];

/// Returns the reported error for a server with this configuration.
async fn last_error(spec: &str) -> String {
    let gateway = Setup::new().config(&format!("[upstream.web]\n{spec}\n")).serve().await;
    let server = eventually("its error", || async {
        Some(upstream(&gateway, "web").await).filter(|server| server["last_error"].is_string())
    })
    .await;
    let list = gateway.operator().get("/v1/upstream").await;
    assert_eq!(list.status, 200);
    server["last_error"].as_str().unwrap().to_owned()
}

#[track_caller]
fn check(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    for word in OURS {
        assert!(!text.contains(word), "\"{word}\" is in: {text}");
    }
    assert!(!text.contains('\n') && text.len() < 500, "{text}");
}

#[tokio::test]
async fn nobody_is_there() {
    let text = last_error("url = \"http://127.0.0.1:9/mcp?key=canary\"").await;
    check(&text, &["cannot reach http://127.0.0.1:9/mcp", "connection refused", "check"]);
    assert!(!text.contains("canary"), "{text}");
    check(
        &last_error("url = \"http://no-such-host.invalid/mcp\"").await,
        &["host name cannot be resolved", "check"],
    );
}

async fn answered(answer: impl Fn() -> PluginAnswer + Send + Sync + 'static) -> String {
    let server = PluginServer::start(move |_| answer()).await;
    let text = last_error(&format!("url = \"{}\"", server.url("/mcp"))).await;
    check(&text, &[&server.url("/mcp")]);
    text
}

#[tokio::test]
async fn somebody_else_is_there() {
    check(
        &answered(|| PluginAnswer::text(404, "text/plain", "no such page")).await,
        &["404", "check its url"],
    );
    check(
        &answered(|| PluginAnswer::text(401, "text/plain", "who are you")).await,
        &["401", "token", "bearer"],
    );
    check(&answered(|| PluginAnswer::text(403, "text/plain", "not you")).await, &["403", "bearer"]);
    check(&answered(|| PluginAnswer::text(500, "text/plain", "oops")).await, &["500", "its log"]);
    check(
        &answered(|| PluginAnswer::text(200, "text/html", "<html>hello")).await,
        &["text/html", "check its url"],
    );
    check(&answered(|| PluginAnswer::json(&json!({ "hello": 1 }))).await, &["not MCP", "check"]);
    check(
        &answered(|| PluginAnswer::redirect(308, "http://127.0.0.1:9/")).await,
        &["308", "redirects", "url"],
    );
    let refusal: Value = json!({ "jsonrpc": "2.0", "id": 0, "error": { "code": -32000, "message": "closed today" } });
    check(&answered(move || PluginAnswer::json(&refusal)).await, &["closed today"]);
}

#[tokio::test]
async fn a_program_does_not_run() {
    check(
        &last_error("command = [\"/no/such/program\"]").await,
        &["/no/such/program", "no such program", "check"],
    );
    check(
        &last_error("command = [\"sh\"]\ncwd = \"/no/such/dir\"").await,
        &["/no/such/dir", "directory"],
    );
    let dir = tempfile::tempdir().unwrap();
    for (name, mode, words) in [("locked", 0o600, "permissions"), ("poem", 0o700, "cannot execute")]
    {
        let file = dir.path().join(name);
        std::fs::write(&file, "roses are red").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        check(&last_error(&format!("command = [{}]", json!(file))).await, &[name, words]);
    }
    check(&last_error("command = [\"false\"]").await, &["ended", "exit status: 1", "manually"]);
    check(
        &last_error("command = [\"sh\", \"-c\", \"echo no licence >&2; exit 4\"]").await,
        &["4", "no licence"],
    );
    check(&last_error("command = [\"echo\", \"hello\"]").await, &["ended"]);
}
