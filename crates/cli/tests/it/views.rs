//! The commands show the current state: a killed node, a running call, the history. External text
//! cannot control the terminal.

use rustix::process::Signal;
use sa_gateway_kit::{Cli, Hello, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn tail_shows_a_call_as_it_happens() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let tail = gateway.cli(&["tail"]).start();
    tail.warns("watching").await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    let started = tail.says("a.b  by ").await;
    let id = started
        .split_whitespace()
        .find(|word| word.len() == 36)
        .unwrap_or_else(|| panic!("{started}"));
    node.fail(&request.id, "not_allowed", "no such luck").await;
    call.await.unwrap();
    let text = tail.says("not_allowed").await;
    assert!(text.contains("no such luck") && text.matches(id).count() == 2, "{text}");
    let shown = gateway.cli(&["calls", id]).run().await;
    assert!(shown.assert_code(0).stdout.contains("not_allowed"), "{}", shown.stdout);
    tail.signal(Signal::INT);
    tail.end().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn nodes_shows_one_that_was_killed_and_calls_what_became_of_its_call() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("mac-01").capability("a").connect(&gateway).await;
    let shown = gateway.cli(&["nodes"]).run().await.stdout;
    assert!(shown.contains("mac-01") && shown.contains("online for"), "{shown}");
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    let running = gateway.cli(&["calls"]).run().await.stdout;
    assert!(running.contains("a.b") && running.contains("running"), "{running}");
    drop(node);
    call.await.unwrap();
    let shown = gateway.cli(&["nodes"]).run().await.stdout;
    assert!(shown.contains("mac-01") && shown.contains("lost 0 s ago"), "{shown}");
    let calls = eventually("the record", || async {
        Some(gateway.cli(&["calls", "--outcome", "offline"]).run().await.stdout)
            .filter(|text| text.contains("a.b"))
    })
    .await;
    assert!(calls.contains("offline"), "{calls}");
    let none = gateway.cli(&["calls", "--tool", "zzz"]).run().await.stdout;
    assert!(none.starts_with("No call matches."), "{none}");
    let bogus = gateway.cli(&["calls", "--outcome", "bogus"]).run().await;
    assert!(bogus.stderr.contains("ok, invalid_args, not_allowed"), "{}", bogus.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_from_outside_steers_the_terminal() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\u{202e}";
    let about =
        json!({ "id": "n", "name": evil, "node_type": evil, "version": evil, "tags": [evil] });
    let mut node = Hello::new("n")
        .with("node", about)
        .capability("a")
        .tool(&format!("bad{evil}"))
        .describe(
            json!({ "name": "a.evil", "title": evil, "description": format!("{evil}\n{evil}") }),
        )
        .connect(&gateway)
        .await;
    let tail = gateway.cli(&["tail"]).start();
    tail.warns("watching").await;
    let started = gateway.cli(&["call", "a.evil"]).start();
    let request = node.request().await;
    let progress = json!({ "type": "tool_progress", "request_id": request.id, "progress": 1, "message": evil });
    node.send(progress).await;
    node.chunk(&request.id, json!(evil)).await;
    node.fail(&request.id, "failed", evil).await;
    let mut shown = vec![started.end().await];
    tail.says("failed").await;
    tail.signal(Signal::INT);
    shown.push(tail.end().await);
    for args in
        [vec!["nodes"], vec!["tools"], vec!["calls"], vec!["audit"], vec!["doctor"], vec!["status"]]
    {
        shown.push(gateway.cli(&args).run().await);
    }
    shown.push(gateway.cli(&["tools", "a_evil"]).run().await);
    let log = gateway.stderr();
    for text in shown.iter().flat_map(|ended| [&ended.stdout, &ended.stderr]).chain([&log]) {
        let steering =
            |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(steering), "{text:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_audit_trail_is_whole_on_a_usual_terminal() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (id, _) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let shown = gateway.cli(&["audit"]).run_on_terminal(80).await.stdout;
    assert!(
        shown.contains("token.created") && shown.contains(&id) && shown.contains("agent \"bot\""),
        "{shown}"
    );
    assert!(
        !shown.contains('…') && shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let piped = gateway.cli(&["audit"]).run().await.stdout;
    assert!(piped.starts_with("AT (UTC)"), "{piped}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_reader_that_leaves_is_no_failure() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let data = gateway.data_dir();
    let line =
        format!("set -o pipefail; {SWITCHBOARD} --data-dir {} tools | head -1", data.display());
    let ended = Cli::new("bash").args(&["-c", &line]).run().await;
    ended.assert_code(0);
    assert!(ended.stdout.starts_with("TOOL"), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
    // A reader that closes the pipe before the first output.
    let line = format!(
        "{SWITCHBOARD} --data-dir {} tools | true; echo ${{PIPESTATUS[0]}}",
        data.display()
    );
    let ended = Cli::new("bash").args(&["-c", &line]).run().await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("0\n", ""));
    gateway.stop().await;
}

#[tokio::test]
async fn shells_get_their_completions() {
    for (shell, word) in
        [("bash", "complete "), ("zsh", "#compdef switchboard"), ("fish", "--command switchboard")]
    {
        let ended = Cli::new(SWITCHBOARD).args(&["completions", shell]).run().await;
        ended.assert_code(0);
        assert!(
            ended.stdout.contains(word) && ended.stdout.contains(SWITCHBOARD),
            "{shell}: {}",
            ended.stdout
        );
    }
    let script = Cli::new(SWITCHBOARD).args(&["completions", "bash"]).run().await.stdout;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("completions");
    std::fs::write(&file, script).unwrap();
    Cli::new("bash").args(&["-n", file.to_str().unwrap()]).run().await.assert_code(0);
}

#[tokio::test]
async fn tokens_are_managed_from_the_command_line() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let made = gateway.cli(&["token", "create", "bot", "--tool", "a.*"]).run().await;
    made.assert_code(0);
    let agent = gateway.agent(made.stdout.trim());
    assert_eq!(agent.get("/v1/tools").await.status, 200);
    let list = gateway.cli(&["token", "list"]).run().await.stdout;
    assert!(list.contains("bot") && !list.contains(made.stdout.trim()), "{list}");
    gateway.cli(&["token", "revoke", "bot"]).run().await.assert_code(0);
    agent.get("/v1/tools").await.assert_problem(401, "unauthorized");
    gateway.cli(&["token", "revoke", "bot"]).run().await.assert_code(5);
    gateway.stop().await;
}
