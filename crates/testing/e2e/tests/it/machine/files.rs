//! A machine's files through the gateway: images arrive as images, errors have their kind, and a
//! killed node leaves no partial files.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustix::process::Signal;
use sa_gateway_kit::{Agent, Cli, Gateway, Setup, Started, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// The smallest valid PNG: one pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

pub(crate) struct Machine {
    dir: TempDir,
    node: Started,
    pub(crate) agent: Agent,
}

/// Starts a node named `box` on its own directory.
pub(crate) async fn machine(gateway: &Gateway, flags: &[&str]) -> Machine {
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
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
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
    assert_eq!(
        reply.body["blocks"][1]["data"].as_str().map(str::len),
        Some(BASE64_STANDARD.encode(&bytes).len())
    );
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
    let written = machine
        .agent
        .call("box__Write", json!({ "path": "a/b.txt", "content": text }))
        .await
        .result();
    assert_eq!(written["bytes"], text.len());
    let read = machine
        .agent
        .call("box__Read", json!({ "path": "a/b.txt", "limit": 100_000 }))
        .await
        .result();
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
    call("box__Read", json!({ "path": "a.txt", "offset": -1 }))
        .await
        .assert_problem(422, "invalid_args");
    call("box__Read", json!({ "path": "/proc/self/environ" }))
        .await
        .assert_problem(403, "not_allowed");
    let binary = call("box__Read", json!({ "path": "data.gz" })).await;
    binary.assert_problem(502, "failed");
    assert_eq!(
        binary.detail(),
        "Binary file: data.gz (application/gzip, 11 bytes) — not a text or image file"
    );
    let twice =
        call("box__Edit", json!({ "path": "a.txt", "oldString": "x", "newString": "y" })).await;
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
    let inside =
        machine.agent.call("box__Read", json!({ "path": format!("{root}/a.txt") })).await.result();
    assert_eq!(inside["content"], "1\tinside");
    machine
        .agent
        .call("box__Read", json!({ "path": "b.txt" }))
        .await
        .assert_problem(403, "not_allowed");
    machine
        .agent
        .call("box__Glob", json!({ "pattern": "*" }))
        .await
        .assert_problem(403, "not_allowed");
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
        // The kill happens at a different moment each time, either between two writes or during
        // one.
        for _ in 0..round {
            machine.agent.call("box__Read", json!({ "path": "a.txt", "limit": 0 })).await;
        }
        machine.node.signal(Signal::KILL);
        machine.node.end().await;
        let left = std::fs::read_to_string(machine.dir.path().join("a.txt")).unwrap();
        assert!(
            contents.contains(&left),
            "{} bytes are neither the old nor the new file",
            left.len()
        );
        for write in writes {
            write.abort();
        }
        machine.node = connect(&gateway, &machine.dir, &[]).await;
    }
}

#[tokio::test]
async fn a_long_search_reports_progress_and_stops_when_it_is_cancelled() {
    let gateway = Setup::new().start().await;
    let machine = machine(&gateway, &[]).await;
    // Few files on the disk, but millions of paths to them: each level has many links to the next
    // one.
    for level in 0..5 {
        let dir = machine.dir.path().join(format!("level{level}"));
        std::fs::create_dir(&dir).unwrap();
        for number in 0..40 {
            std::fs::write(dir.join(format!("file{number}")), "nothing\n").unwrap();
            let next = format!("../level{}", level + 1);
            std::os::unix::fs::symlink(next, dir.join(format!("link{number}"))).unwrap();
        }
    }
    std::fs::create_dir(machine.dir.path().join("level5")).unwrap();
    for (tool, args) in [
        ("box__Grep", json!({ "pattern": "absent", "path": "level0" })),
        ("box__Glob", json!({ "pattern": "**/absent", "path": "level0" })),
    ] {
        let mut events = machine.agent.stream(tool, json!({ "args": args })).await;
        let progress = events.wait_for("progress").await;
        assert!(progress["progress"].as_f64().unwrap() > 0.0, "{progress}");
        machine.agent.delete(&format!("/v1/calls/{}", events.call_id())).await;
        assert_eq!(events.wait_for("error").await["kind"], "cancelled");
        // The search has stopped when the node uses no more CPU time.
        eventually("the search to end", || async {
            let before = cpu_ticks(machine.node.pid());
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            (cpu_ticks(machine.node.pid()) - before <= 1).then_some(())
        })
        .await;
    }
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Mounts the first file over the second one, and runs the rest as a command. The mount disappears
/// with the command.
const MOUNTED: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;

/// The node does not know the gateway's data directory, so only the marks on the files protect
/// them.
#[tokio::test]
async fn no_name_of_a_gateway_s_secret_file_is_read_or_searched() {
    let is_root = rustix::process::geteuid().is_root();
    let data = Arc::new(tempfile::tempdir().unwrap());
    let attachments = data.path().join("data/attachments/channel");
    std::fs::create_dir_all(&attachments).unwrap();
    std::fs::write(attachments.join("one"), "an attachment").unwrap();
    let gateway = Setup::new().in_dir(&data).spawn(SWITCHBOARD).await;
    let token = gateway.data_dir().join("operator.token");
    // Without this, permissions would protect them from another user.
    for path in [data.path(), &gateway.data_dir(), &attachments, &token] {
        open_for_all(path);
    }

    let workspace = tempfile::tempdir().unwrap();
    open_for_all(workspace.path());
    let place = |name: &str| workspace.path().join(name).to_str().unwrap().to_owned();
    for name in ["open.txt", "mounted"] {
        std::fs::write(place(name), format!("{} an attachment", gateway.operator)).unwrap();
    }
    std::fs::hard_link(&token, place("hard")).unwrap();
    std::fs::hard_link(attachments.join("one"), place("attached")).unwrap();
    std::os::unix::fs::symlink(&token, place("soft")).unwrap();
    let mut names =
        vec![token.display().to_string(), attachments.join("one").display().to_string()];
    names.extend(["hard", "attached", "soft"].map(place));
    if is_root {
        names.push(place("mounted"));
    }

    let users: &[&str] = if is_root { &["0", "65534"] } else { &[""] };
    for user in users {
        let cli =
            if is_root {
                let (token, mounted) = (token.to_str().unwrap(), place("mounted"));
                let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
                Cli::new("unshare")
                    .args(&["-m", "sh", "-c", MOUNTED, "sh", token, &mounted])
                    .args(&["setpriv", &user, &group, "--clear-groups", SWITCHBOARD])
            } else {
                Cli::new(SWITCHBOARD)
            };
        let id = format!("box{user}");
        let node = cli
            .args(&["node", "--gateway", &gateway.nodes_url(), "--id", &id, "--read-only"])
            .args(&["--workspace", workspace.path().to_str().unwrap()])
            .start();
        let agent = gateway.operator();
        let [read, grep] = ["Read", "Grep"].map(|tool| format!("{id}__{tool}"));
        eventually("the machine's tools", || async {
            agent.tool_names().await.contains(&read).then_some(())
        })
        .await;
        for name in &names {
            for (tool, args) in [
                (&read, json!({ "path": name })),
                (&grep, json!({ "pattern": "sb_|an", "path": name })),
            ] {
                let reply = agent.call(tool, args).await;
                reply.assert_problem(403, "not_allowed");
                assert!(!reply.detail().contains("ermission"), "{user} {tool}: {}", reply.text);
            }
        }
        let found = agent.call(&grep, json!({ "pattern": "sb_|an" })).await.result();
        let open = if is_root { 1 } else { 2 };
        assert_eq!(found["count"], open, "{user}: {found}");
        agent.call(&read, json!({ "path": "open.txt" })).await.result();
        node.signal(Signal::TERM);
        node.end().await.assert_code(0);
    }
    gateway.stop().await;
}

fn open_for_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn what_the_user_may_not_do_is_not_allowed() {
    if !rustix::process::geteuid().is_root() {
        return sa_test_needs::missing("root", "only root can start a node as another user");
    }
    let gateway = Setup::new().start().await;
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(mode))
            .unwrap();
    };
    place("", 0o755);
    std::fs::write(dir.path().join("secret.txt"), "x").unwrap();
    place("secret.txt", 0o600);
    std::fs::write(dir.path().join("open.txt"), "x needle").unwrap();
    std::fs::create_dir(dir.path().join("closed")).unwrap();
    place("closed", 0o700);
    std::fs::write(dir.path().join("own.txt"), "a longer text than later").unwrap();
    std::os::unix::fs::chown(dir.path().join("own.txt"), Some(65534), Some(65534)).unwrap();
    std::fs::write(dir.path().join("shared.txt"), "x").unwrap();
    place("shared.txt", 0o666);
    let workspace = dir.path().to_str().unwrap();
    let node = Cli::new("setpriv")
        .args(&["--reuid=65534", "--regid=65534", "--clear-groups", SWITCHBOARD])
        .args(&["node", "--gateway", &gateway.nodes_url(), "--id", "box", "--workspace", workspace])
        .start();
    let agent = gateway.operator();
    eventually("the machine's tools", || async {
        agent.tool_names().await.contains(&"box__Read".to_owned()).then_some(())
    })
    .await;
    for (tool, args) in [
        ("box__Read", json!({ "path": "secret.txt" })),
        ("box__Read", json!({ "path": "closed/a" })),
        ("box__Write", json!({ "path": "new.txt", "content": "" })),
        ("box__Write", json!({ "path": "sub/new.txt", "content": "" })),
        ("box__Edit", json!({ "path": "open.txt", "oldString": "x", "newString": "y" })),
    ] {
        let reply = agent.call(tool, args).await;
        reply.assert_problem(403, "not_allowed");
        assert!(reply.detail().contains("ermission"), "{}", reply.text);
    }
    // A file may be writable in a directory that is not, and it keeps its owner.
    for name in ["own.txt", "shared.txt"] {
        use std::os::unix::fs::MetadataExt as _;
        let path = dir.path().join(name);
        let before = std::fs::metadata(&path).unwrap();
        agent.call("box__Write", json!({ "path": name, "content": "later" })).await.result();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "later");
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), before.uid());
    }
    // Unreadable files are left out of a search and counted.
    let found = agent.call("box__Grep", json!({ "pattern": "needle" })).await.result();
    assert_eq!((&found["count"], &found["unreadable"]), (&json!(1), &json!(2)), "{found}");
    node.signal(Signal::TERM);
    node.end().await.assert_code(0);
}
