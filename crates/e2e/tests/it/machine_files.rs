//! A machine's files through the gateway: images arrive as images, errors as what they are, and a killed node leaves
//! whole files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustix::process::Signal;
use sa_testkit::{Agent, Cli, Gateway, Setup, Started, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// The smallest PNG there is: one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

struct Machine {
    dir: TempDir,
    node: Started,
    agent: Agent,
}

/// A node named `box` on a directory of its own.
async fn machine(gateway: &Gateway, flags: &[&str]) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    let node = connect(gateway, &dir, flags).await;
    Machine { dir, node, agent: gateway.operator() }
}

async fn connect(gateway: &Gateway, dir: &TempDir, flags: &[&str]) -> Started {
    let workspace = dir.path().to_str().unwrap();
    let node = Cli::new(SWITCHBOARD)
        .args(&["node", "--gateway", &gateway.nodes_url(), "--id", "box", "--workspace", workspace])
        .args(flags)
        .start();
    let agent = gateway.operator();
    eventually("the machine's tools", || async {
        agent.tool_names().await.contains(&"box__Read".to_owned()).then_some(())
    })
    .await;
    node
}

impl Machine {
    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }
}

#[tokio::test]
async fn an_image_arrives_as_an_image() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    machine.file("photo.png", BASE64_STANDARD.decode(PNG).unwrap());
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });

    let reply = machine.agent.call("box__Read", json!({ "path": "photo.png" })).await;
    assert_eq!(reply.body["blocks"][1], image, "{}", reply.text);

    let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", gateway.url));
    config.auth_header = Some(gateway.operator.clone());
    let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let mut request = CallToolRequestParams::new("box__Read");
    request.arguments = json!({ "path": "photo.png" }).as_object().cloned();
    let result = serde_json::to_value(client.call_tool(request).await.unwrap()).unwrap();
    assert_eq!(result["content"][0]["text"], "Image file: photo.png (image/png, 70 bytes)");
    assert_eq!(result["content"][1], image, "{result}");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn an_image_of_ten_megabytes_still_arrives() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    let mut bytes = BASE64_STANDARD.decode(PNG).unwrap();
    bytes.resize(10 * 1024 * 1024, 7);
    machine.file("large.png", &bytes);
    let reply = machine.agent.call("box__Read", json!({ "path": "large.png" })).await;
    assert_eq!(reply.body["blocks"][1]["data"].as_str().map(str::len), Some(BASE64_STANDARD.encode(&bytes).len()));
    machine.file("larger.png", [bytes, vec![7]].concat());
    let reply = machine.agent.call("box__Read", json!({ "path": "larger.png" })).await;
    reply.assert_problem(502, "failed");
    assert!(reply.detail().contains("10 MB"), "{}", reply.text);
}

#[tokio::test]
async fn a_large_file_is_read_and_written_in_one_call() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    let text = "0123456789 abcdef\n".repeat(200_000);
    let written = machine.agent.call("box__Write", json!({ "path": "a/b.txt", "content": text })).await.result();
    assert_eq!(written["bytes"], text.len());
    let read = machine.agent.call("box__Read", json!({ "path": "a/b.txt", "limit": 100_000 })).await.result();
    assert_eq!((&read["lines"], read.get("truncated")), (&json!(100_000), None));
    let whole = machine.agent.call("box__Read", json!({ "path": "a/b.txt" })).await.result();
    assert_eq!((&whole["truncated"], &whole["totalLines"]), (&json!(true), &json!(200_000)));
}

#[tokio::test]
async fn errors_are_problems_of_their_kind() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    machine.file("data.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff");
    machine.file("a.txt", "x x");
    let call = |tool: &'static str, args: Value| machine.agent.call(tool, args);
    call("box__Read", json!({ "path": "none" })).await.assert_problem(404, "not_found");
    call("box__Read", json!({ "path": "a.txt", "offset": -1 })).await.assert_problem(422, "invalid_args");
    call("box__Read", json!({ "path": "/proc/self/environ" })).await.assert_problem(403, "not_allowed");
    let binary = call("box__Read", json!({ "path": "data.gz" })).await;
    binary.assert_problem(502, "failed");
    assert_eq!(binary.detail(), "Binary file: data.gz (application/gzip, 11 bytes) — not a text or image file");
    let twice = call("box__Edit", json!({ "path": "a.txt", "oldString": "x", "newString": "y" })).await;
    twice.assert_problem(502, "failed");
    assert!(twice.detail().contains("2 times"), "{}", twice.text);
    call("box__Grep", json!({ "pattern": "(" })).await.assert_problem(422, "invalid_args");
}

#[tokio::test]
async fn flags_confine_the_tools() {
    let gateway = Setup::new().start().await;
    let allowed = tempfile::tempdir().unwrap();
    std::fs::write(allowed.path().join("a.txt"), "inside").unwrap();
    let root = allowed.path().to_str().unwrap();
    let machine = machine(&gateway, &["--allow-root", root, "--read-only"]).await;
    machine.file("b.txt", "outside");
    let names = machine.agent.tool_names().await;
    assert!(!names.iter().any(|name| name == "box__Write" || name == "box__Edit"), "{names:?}");
    let inside = machine.agent.call("box__Read", json!({ "path": format!("{root}/a.txt") })).await.result();
    assert_eq!(inside["content"], "1\tinside");
    machine.agent.call("box__Read", json!({ "path": "b.txt" })).await.assert_problem(403, "not_allowed");
    machine.agent.call("box__Glob", json!({ "pattern": "*" })).await.assert_problem(403, "not_allowed");
}

#[tokio::test]
async fn a_killed_node_leaves_whole_files() {
    let gateway = Setup::new().start().await;
    let mut machine = machine(&gateway, &[]).await;
    let contents = ["1", "2"].map(|digit| digit.repeat(1_000_000));
    machine.file("a.txt", &contents[0]);
    for round in 0..5 {
        let writes: Vec<_> = (0..8)
            .map(|at| {
                let args = json!({ "path": "a.txt", "content": contents[at % 2] });
                machine.agent.call_later("box__Write", json!({ "args": args, "timeout_ms": 2_000 }))
            })
            .collect();
        // Killed at another moment each time, but always between two writes or inside of one.
        for _ in 0..round {
            machine.agent.call("box__Read", json!({ "path": "a.txt", "limit": 0 })).await;
        }
        machine.node.signal(Signal::KILL);
        machine.node.end().await;
        let left = std::fs::read_to_string(machine.dir.path().join("a.txt")).unwrap();
        assert!(contents.contains(&left), "{} bytes are neither the old nor the new file", left.len());
        for write in writes {
            write.abort();
        }
        machine.node = connect(&gateway, &machine.dir, &[]).await;
    }
}
