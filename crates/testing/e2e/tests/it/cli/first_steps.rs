//! The first commands of a new user work, or explain why not and what to type instead.

use sa_gateway_kit::{Cli, Hello, Setup, eventually};
use serde_json::json;
use tokio::net::TcpListener;

use crate::SWITCHBOARD;

#[tokio::test]
async fn the_operators_token_goes_nowhere_else() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    // An address that cannot be recognised as this machine's own.
    let elsewhere = gateway.cli(&["tools", "--url", "http://192.0.2.1:9"]).run().await;
    elsewhere.assert_code(4);
    assert!(elsewhere.stderr.contains("--token-file"), "{}", elsewhere.stderr);

    // With --url as the server's address, the command adds nothing and sends no request.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", server.local_addr().unwrap());
    for args in [&["upstream", "add", "issues", "--url", &url][..], &["upstream", "add", "issues"]]
    {
        let ended = gateway.cli(args).run().await;
        ended.assert_code(2);
        for way in ["SERVER_URL", "--command"] {
            assert!(ended.stderr.contains(way), "{}", ended.stderr);
        }
    }
    let arrived =
        std::future::poll_fn(|cx| std::task::Poll::Ready(server.poll_accept(cx).is_ready())).await;
    assert!(!arrived, "somebody connected to the server");
    gateway.cli(&["upstream", "add", "issues", &url]).run().await.assert_code(0);
    let list = gateway.operator().get("/v1/upstream").await;
    assert_eq!(list.body["upstream"][0]["url"], url, "{}", list.text);
}

#[tokio::test]
async fn a_sandbox_holds_for_files_too() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "canary").unwrap();
    let start = |flags: &[&str]| {
        let workspace = inside.path().to_str().unwrap();
        Cli::new(SWITCHBOARD)
            .args(&[
                "node",
                "--gateway",
                &gateway.nodes_url(),
                "--id",
                "box",
                "--workspace",
                workspace,
                "--sandbox",
            ])
            .args(flags)
            .start()
    };
    let operator = gateway.operator();
    let ready = || {
        eventually("the tools", || async {
            operator.tool_names().await.contains(&"box__Read".into()).then_some(())
        })
    };
    let node = start(&[]);
    ready().await;
    let said = node.warns("  files ").await;
    assert!(said.contains(&format!("files      in {}", inside.path().display())), "{said}");
    operator.call("box__Write", json!({ "path": "a", "content": "x" })).await.result();
    for (tool, args) in [
        ("box__Read", json!({ "path": secret })),
        ("box__Write", json!({ "path": outside.path().join("new"), "content": "x" })),
        ("box__Edit", json!({ "path": secret, "oldString": "canary", "newString": "x" })),
    ] {
        let reply = operator.call(tool, args).await;
        reply.assert_problem(403, "not_allowed");
    }
    assert!(!outside.path().join("new").exists());
    node.signal(rustix::process::Signal::TERM);
    node.end().await;

    // Another root can be allowed explicitly.
    let _node = start(&["--allow-root", "/"]);
    assert_eq!(operator.call("box__Read", json!({ "path": secret })).await.status, 200);
}

#[tokio::test]
async fn a_node_without_a_token_is_told_how_to_name_one() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let made = gateway.cli(&["token", "create", "laptop", "--role", "node"]).run().await;
    made.assert_code(0);
    assert!(made.stderr.contains("nodes without a token are refused"), "{}", made.stderr);
    assert!(!made.stderr.contains("only this time"), "nobody sees it: {}", made.stderr);
    let second = gateway.cli(&["token", "create", "desktop", "--role", "node"]).run().await;
    assert!(!second.stderr.contains("refused"), "{}", second.stderr);

    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().to_str().unwrap();
    let node = gateway.cli(&["node", "--id", "laptop", "--workspace", workspace]);
    let refused = node.run().await;
    refused.assert_code(4);
    for words in ["a token is required", "--token-file FILE or SA_NODE_TOKEN"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("{\""), "{}", refused.stderr);
}

#[tokio::test]
async fn in_channels_a_name_is_one_tokens_alone() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    let (ann, _) = gateway.token(json!({ "name": "ann", "role": "participant" })).await;
    gateway.token(json!({ "name": "ann", "role": "node" })).await;
    for (name, role) in [
        ("ann", "participant"),
        ("ann", "agent"),
        ("operator", "participant"),
        ("operator", "agent"),
        ("console", "user"),
    ] {
        let reply = operator.post("/v1/tokens", &json!({ "name": name, "role": role })).await;
        reply.assert_problem(409, "conflict");
    }
    gateway.cli(&["token", "create", "ann", "--role", "participant"]).run().await.assert_code(9);
    operator.delete(&format!("/v1/tokens/{ann}")).await;
    gateway.token(json!({ "name": "ann", "role": "participant" })).await;

    // Tokens for agents may share a name, which is then ambiguous.
    for _ in 0..2 {
        gateway.token(json!({ "name": "bots", "role": "agent" })).await;
    }
    gateway.cli(&["token", "revoke", "bots"]).run().await.assert_code(9);
    gateway.cli(&["token", "revoke", "nobody"]).run().await.assert_code(5);
}

#[tokio::test]
async fn a_session_or_channel_that_is_not_there_is_not_found_for_operators_either() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    for query in ["session=nope", "channel=nope"] {
        let reply = operator.post(&format!("/mcp?{query}"), &json!({})).await;
        reply.assert_problem(404, "not_found");
    }
    let said = json!({ "type": "note", "payload": { "text": "hello" } });
    let published = operator.post("/v1/channels/room/messages", &said).await;
    assert!(published.status < 300, "{}", published.text);
    assert_ne!(operator.post("/mcp?channel=room", &json!({})).await.status, 404);
}

#[tokio::test]
async fn a_node_that_takes_anothers_place_is_told() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _first = Hello::new("box").tool("notes.search").connect(&gateway).await;
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().to_str().unwrap();
    let second = gateway.cli(&["node", "--id", "box", "--workspace", workspace]).start();
    second.warns("an open connection with the same node id was closed for this one").await;
    let audit = gateway.operator().get("/v1/audit").await;
    assert!(audit.text.contains("took an open connection's place"), "{}", audit.text);
}

#[tokio::test]
async fn the_status_counts_every_tool_that_is_listed() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").tool("notes.search").connect(&gateway).await;
    let operator = gateway.operator();
    let listed = operator.get("/v1/tools?limit=1000").await.body["tools"].as_array().unwrap().len();
    assert!(listed > operator.tool_names().await.len(), "the gateway's own tools are listed, too");
    assert_eq!(operator.get("/v1/status").await.body["tools"], listed);
}

#[tokio::test]
async fn what_goes_wrong_at_the_start_stands_above_the_welcome() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    std::fs::write(
        &file,
        "[upstream.bad]\ncommand = [\"no-such-server-anywhere\"]\n[log]\nformat = \"human\"\n",
    )
    .unwrap();
    let data = dir.path().join("data");
    // Both streams are combined, as on a terminal.
    let up = Cli::new("sh")
        .args(&["-c", "exec \"$0\" \"$@\" 2>&1", SWITCHBOARD, "up", "--listen", "127.0.0.1:0"])
        .args(&["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()])
        .start();
    let said = up.says("Press Ctrl-C to stop.").await;
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}: {said}"));
    assert!(at("WARN") < at("is up, with a demo node"), "{said}");
    let welcome = &said[at("is up, with a demo node")..at("Press Ctrl-C to stop.")];
    assert!(!welcome.contains("WARN") && !welcome.contains("INFO"), "{welcome}");
    assert!(welcome.contains("bad is unavailable"), "{welcome}");
    // The test program has a different name from the installed one.
    let hint =
        format!("switchboard is not in your PATH. Instead of switchboard, type\n  {SWITCHBOARD}");
    assert!(welcome.contains(&hint), "{welcome}");
    up.signal(rustix::process::Signal::TERM);
    up.end().await.assert_code(0);
}
