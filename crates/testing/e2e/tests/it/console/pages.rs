//! The console works in a browser with the real program. The tests go from the printed link to the
//! first call. They check each page in light and dark mode, wide and narrow, by keyboard alone, and
//! with ten thousand calls. The scripts are in `console/e2e`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::StreamExt as _;
use sa_gateway_kit::{CallSocket, Cli, FakeNode, Gateway, Hello, Message, Setup, TIMEOUT, soon};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use crate::SWITCHBOARD;

/// More calls than one page of the history, and more than a browser could render at once.
const CALLS: usize = 10_000;

/// The smallest valid PNG.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Drives a browser with a script. `said` receives each line that the script prints.
async fn browse(script: &str, setup: Value, mut said: impl FnMut(&str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    let mut child = Command::new("node")
        .arg(root.join("console/e2e").join(script))
        .env("CONSOLE_TEST", setup.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut complaint = String::new();
    let mut errors = child.stderr.take().unwrap();
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            said(&line);
        }
    };
    // Each step of a script has its own timeout; this one is for a browser that hangs.
    let both = async { tokio::join!(reading, errors.read_to_string(&mut complaint)).1 };
    let _ = tokio::time::timeout(TIMEOUT * 12, both).await.expect("the browser hangs");
    let status = soon(child.wait()).await.unwrap();
    assert!(status.success(), "{script}: {complaint}");
}

/// Starts the program with its demo node, and a node with tools for every kind of form field.
async fn gateway() -> (Gateway, tokio::task::JoinHandle<()>) {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let node = forms(&gateway).await;
    // The demo node connects a moment later.
    sa_gateway_kit::eventually("the demo's tools", || async {
        gateway.operator().get("/v1/tools").await.text.contains("demo_echo").then_some(())
    })
    .await;
    (gateway, node)
}

async fn forms(gateway: &Gateway) -> tokio::task::JoinHandle<()> {
    let place = json!({ "type": "object", "properties": { "street": { "type": "string" } }, "required": ["street"] });
    let address = json!({ "type": "object", "title": "Address", "required": ["town"], "properties": {
        "town": { "type": "string", "title": "Town" },
        "zip": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null, "title": "Zip" },
        "lines": { "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "null" }], "default": null, "title": "Lines" },
    } });
    let fill = json!({ "name": "forms.fill", "description": "Fills in a form. See https://example.com/forms.", "input_schema": {
        "type": "object",
        "required": ["title"],
        "properties": {
            "title": { "type": "string", "description": "What it is about" },
            "count": { "type": "integer", "minimum": 1, "maximum": 9 },
            "urgent": { "type": "boolean" },
            "level": { "enum": ["low", "high", 3] },
            "where": { "$ref": "#/$defs/place" },
            "labels": { "type": "array", "items": { "type": "string" } },
            "anything": { "oneOf": [{ "type": "object" }, { "type": "array" }] },
            "secret": { "type": "string", "format": "password" },
            // The form in which Python servers describe optional parameters.
            "note": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
            "limit": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": null },
            "tags": { "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "null" }], "default": null },
            "home": { "anyOf": [{ "$ref": "#/$defs/Address" }, { "type": "null" }], "default": null },
            "work": { "anyOf": [{ "$ref": "#/$defs/Address" }, { "type": "null" }], "default": null },
            "stops": { "anyOf": [{ "type": "array", "items": { "$ref": "#/$defs/Address" } }, { "type": "null" }], "default": null, "title": "Stops" },
        },
        "$defs": { "place": place, "Address": address },
    } });
    let hello = Hello::new("forms").describe(fill).tool("forms.picture").tool("forms.break");
    tokio::spawn(serve_forms(hello.connect(gateway).await))
}

async fn serve_forms(mut node: FakeNode) {
    while let Some(Ok(message)) = node.socket.next().await {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if frame["type"] != "tool_request" {
            continue;
        }
        let id = frame["request_id"].as_str().unwrap();
        match frame["tool"].as_str().unwrap() {
            "forms.picture" => {
                let picture =
                    json!([{ "mime_type": "image/png", "name": "pixel.png", "data": PIXEL }]);
                let answer = json!({ "type": "tool_response", "request_id": id, "ok": true, "result": {}, "attachments": picture });
                node.send(answer).await;
            }
            "forms.break" => node.fail(id, "failed", "it broke").await,
            _ => node.answer(id, frame["args"].clone()).await,
        }
    }
}

fn described(gateway: &Gateway) -> Value {
    json!({ "url": gateway.url, "operator": gateway.operator })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_printed_link_to_the_first_call() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let up = Cli::new(SWITCHBOARD)
        .args(&["up", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()])
        .start();
    let said = up.says("Press Ctrl-C to stop").await;
    let link = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("console "))
        .unwrap()
        .trim()
        .to_owned();
    let operator = std::fs::read_to_string(data.join("operator.token")).unwrap();
    assert!(!said.contains(operator.trim()), "the token is not printed");
    let (url, _) = link.split_once("/console/#code=").unwrap();
    browse("first.mjs", json!({ "url": url, "operator": operator.trim(), "link": link }), |_| {})
        .await;
    up.signal(rustix::process::Signal::TERM);
    up.end().await.assert_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_in_every_light_and_width() {
    let (gateway, _node) = gateway().await;
    let operator = gateway.operator();
    operator.call("forms_fill", json!({ "title": "a call" })).await;
    let message = json!({ "type": "message", "payload": { "id": "00000000-0000-4000-8000-000000000001", "content": "a message with a verylongwordverylongwordverylongwordverylongword" } });
    operator.post("/v1/channels/lobby/messages", &message).await;
    let session =
        json!({ "message": "hello", "context": { "caller_id": "app", "caller_tools": [] } });
    operator.post("/v1/sessions", &session).await;
    operator
        .post("/v1/upstream", &json!({ "name": "nowhere", "url": "http://127.0.0.1:9/mcp" }))
        .await;
    let calls = operator.get("/v1/calls").await.body;
    let call = format!("calls/{}", calls["calls"][0]["id"].as_str().unwrap());
    let pages = json!([
        ["overview", "Latest calls"],
        ["tools", "demo_countdown"],
        ["tools/forms_fill", "What it is about"],
        ["calls", "forms_fill"],
        [call, "Began"],
        ["nodes", "forms_picture"],
        ["upstream", "nowhere"],
        ["sessions", "app"],
        ["channels", "lobby"],
        ["channels/lobby", "verylongword"],
        ["nothing", "Nothing is here"],
    ]);
    let mut setup = described(&gateway);
    setup["pages"] = pages;
    browse("pages.mjs", setup, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_keyboard_alone() {
    let (gateway, _node) = gateway().await;
    browse("keyboard.mjs", described(&gateway), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_by_form_and_the_same_elsewhere() {
    let (gateway, _node) = gateway().await;
    // The program under its usual name.
    let programs: PathBuf = gateway.dir.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(SWITCHBOARD, programs.join("switchboard")).unwrap();
    let mut setup = described(&gateway);
    setup["programs"] = json!(programs);
    browse("tools.mjs", setup, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls() {
    let (gateway, _node) = gateway().await;
    let mut socket = CallSocket::connect(&gateway.url, &gateway.operator).await;
    for batch in 0..CALLS / 20 {
        for at in 0..20 {
            socket
                .call(
                    &format!("{batch}.{at}"),
                    "forms_fill",
                    json!({ "title": format!("call {batch}.{at}") }),
                )
                .await;
        }
        for _ in 0..20 {
            socket.recv().await;
        }
    }
    let mut setup = described(&gateway);
    setup["calls"] = json!(CALLS);
    browse("calls.mjs", setup, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_elsewhere_appears_by_itself() {
    let (gateway, _node) = gateway().await;
    let mut setup = described(&gateway);
    setup["server"] = json!(crate::upstream::server::SERVER);
    browse("live.mjs", setup, |line| {
        if line == "STOP" {
            gateway.signal(rustix::process::Signal::KILL);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_tools_and_a_plugins_page() {
    let dir = tempfile::tempdir().unwrap();
    browse("chat.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_plugins_and_a_changed_manifest() {
    let dir = tempfile::tempdir().unwrap();
    browse("plugins.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_server_s_app_beside_its_result() {
    let dir = tempfile::tempdir().unwrap();
    browse("apps.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_reaches_a_plugin_s_page_by_grant_alone() {
    let dir = tempfile::tempdir().unwrap();
    browse("grants.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_plugins_and_hostile_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    browse("attack.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_comes_back_and_a_node_that_does_not() {
    let dir = tempfile::tempdir().unwrap();
    browse("restart.mjs", json!({ "program": SWITCHBOARD, "dir": dir.path() }), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_has_changed_is_shown_and_accepted() {
    let gateway = Setup::new().config("[trust]\non_change = \"hold\"\n").spawn(SWITCHBOARD).await;
    let hello = |description: &str| {
        Hello::new("n").describe(json!({ "name": "notes.read", "description": description }))
    };
    drop(hello("Reads a note.").connect(&gateway).await.echo());
    let _node = hello("Sends <b>it</b>.").connect(&gateway).await.echo();
    let mut setup = described(&gateway);
    setup["shot"] = json!(std::env::var("CONSOLE_SHOT").ok());
    browse("changes.mjs", setup, |_| {}).await;
    assert_eq!(gateway.operator().call("notes_read", json!({})).await.status, 200);
    gateway.stop().await;
}
