//! On a terminal, output appears once, fits the width and uses common words, and tool output cannot
//! control the cursor.

use sa_gateway_kit::{Cli, FakeNode, Finished, Gateway, Hello, SdkNode, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Returns the result of a shell tool.
fn ended(output: &str, code: i64) -> Value {
    json!({ "status": "completed", "sessionId": "s1", "exitCode": code, "signal": null, "timedOut": false, "startedAt": 1,
        "endedAt": 2, "durationMs": 1500, "output": output, "tail": output, "truncated": false, "workdir": "/w" })
}

async fn machine(gateway: &Gateway) -> FakeNode {
    let schema = json!({ "type": "object", "required": ["command"], "properties": {
        "command": { "type": "string", "description": "What to run, which may take a good many words to explain to people" },
        "timeout": { "type": ["number", "null"], "default": 300, "description": "In seconds" } } });
    let shell = json!({ "name": "sh.run", "title": "Run a command", "description": "Runs it. ".repeat(20),
        "input_schema": schema });
    Hello::new("mac-01").capability("sh").describe(shell).connect(gateway).await
}

/// Runs a call on a terminal while the node answers it like this.
async fn watched(
    gateway: &Gateway,
    node: &mut FakeNode,
    args: &[&str],
    chunks: &[&str],
    result: Value,
) -> Finished {
    let call =
        tokio::spawn(gateway.cli(&["call", "sh.run", "command=x"]).args(args).run_on_terminal(80));
    let request = node.request().await;
    for chunk in chunks {
        node.chunk(&request.id, json!(chunk)).await;
    }
    node.answer(&request.id, result).await;
    call.await.unwrap()
}

#[tokio::test]
async fn a_commands_output_is_shown_once_and_is_all_that_a_file_gets() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let shown =
        watched(&gateway, &mut node, &[], &["one\n", "two\n"], ended("one\ntwo\n", 3)).await;
    assert_eq!(shown.assert_code(0).stdout, "one\ntwo\n[exit code 3, 1.50 s]\n");
    // Nothing was streamed, so the output comes from the result.
    let shown = watched(&gateway, &mut node, &[], &[], ended("one\n", 0)).await;
    assert_eq!(shown.stdout, "one\n[exit code 0, 1.50 s]\n");

    let piped = gateway.cli(&["call", "sh.run", "command=x"]).start();
    let request = node.request().await;
    node.chunk(&request.id, json!("one\n")).await;
    node.answer(&request.id, ended("one\n", 0)).await;
    let piped = piped.end().await;
    assert_eq!(
        (piped.stdout.as_str(), piped.stderr.as_str()),
        ("one\n", "[exit code 0, 1.50 s]\n")
    );

    let json = gateway.cli(&["call", "sh.run", "command=x", "--json"]).start();
    let request = node.request().await;
    node.chunk(&request.id, json!("one\n")).await;
    node.answer(&request.id, ended("one\n", 0)).await;
    assert_eq!(json.end().await.json()["result"], ended("one\n", 0));

    // Output before a failure may explain it, so it is shown.
    let failed = gateway.cli(&["call", "sh.run", "command=x"]).start();
    let request = node.request().await;
    node.chunk(&request.id, json!("on the way\n")).await;
    node.fail(&request.id, "failed", "no luck").await;
    let failed = failed.end().await;
    assert_eq!(
        (failed.stdout.as_str(), failed.stderr.as_str()),
        ("", "on the way\nerror: no luck\n")
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_tool_breaks_lines_and_does_nothing_else_to_the_terminal() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let evil = "\u{1b}[2J\u{7}";
    let text = format!("10%\r20%\r\n\ta{evil}\n");
    let shown = watched(
        &gateway,
        &mut node,
        &[],
        &["10%\r20%\r", &format!("\n\ta{evil}\n")],
        ended(&text, 0),
    )
    .await;
    assert_eq!(shown.stdout, "10%\n20%\n\ta\\u{1b}[2J\\u{7}\n[exit code 0, 1.50 s]\n");
    let shown =
        watched(&gateway, &mut node, &[], &[], json!({ "path": "/x", "content": text })).await;
    assert_eq!(shown.stdout, "path: /x\ncontent:\n10%\n20%\n\ta\\u{1b}[2J\\u{7}\n");
    let shown =
        watched(&gateway, &mut node, &[], &["said\n"], json!({ "said": "said\n", "more": 1 }))
            .await;
    assert_eq!(shown.stdout, "said\n{\n  \"more\": 1\n}\n");
    gateway.stop().await;
}

#[tokio::test]
async fn images_are_named_and_can_be_saved() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let result =
        json!({ "content": [{ "type": "text", "text": "a plot" }, image("AAEC"), image("AwQ=")] });
    let shown = watched(&gateway, &mut node, &[], &[], result.clone()).await;
    assert_eq!(
        shown.stdout,
        "a plot\n[image image/png 3 B]\n[image image/png 2 B]\nadd --output FILE to save it\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plot.png");
    watched(&gateway, &mut node, &["--output", file.to_str().unwrap()], &[], result)
        .await
        .assert_code(0);
    assert_eq!(std::fs::read(&file).unwrap(), [0, 1, 2]);
    assert_eq!(std::fs::read(dir.path().join("plot-2.png")).unwrap(), [3, 4]);
    let text = dir.path().join("text");
    watched(&gateway, &mut node, &["-o", text.to_str().unwrap()], &[], json!("a\u{1b}b"))
        .await
        .assert_code(0);
    assert_eq!(std::fs::read(&text).unwrap(), b"a\x1bb", "a file gets it as it is");
    gateway.stop().await;
}

#[tokio::test]
async fn attachments_take_nothing_from_the_result() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.md");
    let attached = json!([{ "mime_type": "text/markdown", "name": "report.md", "data": "QUI=" }]);
    let saves = ["-o", file.to_str().unwrap()];
    for (options, told) in [(&saves[..], "saved 2 B"), (&[], "1 attachment;")] {
        let call = tokio::spawn(gateway.cli(&["call", "sh.run", "command=x"]).args(options).run());
        let request = node.request().await;
        let result = json!({ "pages": 3 });
        let (id, answer) = (&request.id, &result);
        node.send(
            json!({ "type": "tool_response", "request_id": id, "ok": true, "result": answer, "attachments": attached }),
        )
        .await;
        let ended = call.await.unwrap();
        ended.assert_code(0);
        assert_eq!(ended.json(), result, "{ended:?}");
        assert!(ended.stderr.contains(told), "{ended:?}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"AB");
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_found_out_before_the_call() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let dir = tempfile::tempdir().unwrap();
    for file in [dir.path().join("nodir/x"), dir.path().to_owned()] {
        let options = ["call", "sh.run", "command=x", "-o", file.to_str().unwrap()];
        let ended = gateway.cli(&options).run().await;
        assert!(ended.code != Some(0) && ended.stderr.contains("cannot write"), "{ended:?}");
    }
    node.settle().await; // The next frame is the pong, so there was no call.
    // A failed call leaves no file behind.
    let file = dir.path().join("new");
    let call = tokio::spawn(
        gateway.cli(&["call", "sh.run", "command=x", "-o", file.to_str().unwrap()]).run(),
    );
    let request = node.request().await;
    node.fail(&request.id, "failed", "no").await;
    assert_ne!(call.await.unwrap().code, Some(0));
    assert!(!file.exists());
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_is_wider_than_the_terminal() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    watched(&gateway, &mut node, &[], &[], ended("x\n", 0)).await;
    gateway.cli(&["call", "sh.run"]).run().await.assert_code(6);
    let started = gateway.cli(&["call", "session_message", "message=hello"]).run().await.json();
    let session = started["session_id"].as_str().unwrap();
    gateway.cli(&["sessions", "end", session]).run().await.assert_code(0);
    gateway
        .cli(&["token", "create", "somebody-with-a-long-name", "--tool", "a.*"])
        .run()
        .await
        .assert_code(0);
    gateway.cli(&["channel", "send", "lobby", "hello"]).run().await.assert_code(0);
    let long = "mac.a_tool_whose_name_is_nearly_as_long_as_a_name_may_be";
    let _other = Hello::new("a-machine-with-a-name-of-some-length")
        .tool(long)
        .connect(&gateway)
        .await
        .echo();
    gateway.cli(&["call", long]).run().await.assert_code(0);
    let program = "/no/such/program/in/a/folder/that/is/rather/deep/mcp-server";
    gateway
        .cli(&["upstream", "add", "github-enterprise", "--command", program])
        .run()
        .await
        .assert_code(0);
    let call = eventually("the record", || async {
        let calls = gateway.operator().get("/v1/calls?tool=sh.run").await.body;
        calls["calls"][0]["id"].as_str().map(str::to_owned)
    })
    .await;
    let commands: [&[&str]; 22] = [
        &["--help"],
        &["call", "--help"],
        &["status"],
        &["tools"],
        &["tools", "sh_run"],
        &["tools", "session"],
        &["nodes"],
        &["calls"],
        &["calls", &call],
        &["sessions"],
        &["audit"],
        &["doctor"],
        &["config", "show"],
        &["config", "explain"],
        &["config", "explain", "nodes.primary"],
        &["plugin", "list"],
        &["upstream", "list"],
        &["channel", "ls"],
        &["channel", "roster", "lobby"],
        &["channel", "tail", "lobby", "--no-follow"],
        &["token", "list"],
        &["eligibility", "--bin", "git"],
    ];
    let plain = |text: &str| {
        ["\u{1b}[1m", "\u{1b}[0m", "\u{1b}[4m"]
            .iter()
            .fold(text.to_owned(), |t, c| t.replace(c, ""))
    };
    for args in commands {
        let shown = plain(&gateway.cli(args).run_on_terminal(80).await.stdout);
        assert!(!shown.trim().is_empty(), "{args:?}");
        assert!(!shown.contains('\u{1b}'), "{args:?}: {shown:?}");
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}\n{shown}");
            assert_eq!(line, line.trim_end(), "{args:?}");
        }
        let quiet = gateway.cli(args).env("NO_COLOR", "1").run().await;
        assert!(!quiet.stdout.contains('\u{1b}') && !quiet.stderr.contains('\u{1b}'), "{args:?}");
    }
    // Names that the user must type are never cut, and piped output is not cut at all.
    let exposed = long.replace('.', "_");
    for (args, words) in [
        (vec!["calls"], vec![&call[..13], &exposed]),
        (vec!["tools"], vec!["sh_run", &exposed]),
        (vec!["nodes"], vec!["a-machine-with-a-name-of-some-length"]),
        (vec!["upstream", "list"], vec!["github-enterprise"]),
        (vec!["token", "list"], vec!["somebody-with-a-long-name"]),
    ] {
        let shown = gateway.cli(&args).run_on_terminal(80).await.stdout;
        assert!(words.iter().all(|word| shown.contains(word)), "{args:?}: {shown}");
        let piped = gateway.cli(&args).run().await.stdout;
        assert!(
            !piped.contains('…') && words.iter().all(|word| piped.contains(word)),
            "{args:?}: {piped}"
        );
    }
    let piped = gateway.cli(&["tools"]).run().await.stdout;
    assert!(
        piped.lines().any(|line| line.contains("sh_run") && line.chars().count() > 80),
        "{piped}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn the_history_says_what_was_called_how_long_it_took_and_by_whom_on_any_terminal() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let long = "github.create_a_pull_request";
    let _node = Hello::new("one").tool(long).tool("a.b").connect(&gateway).await.echo();
    for tool in [long, "a.b"] {
        gateway.cli(&["call", tool]).run().await.assert_code(0);
    }
    gateway.cli(&["call", "nothing"]).run().await.assert_code(5);
    let list = eventually("the records", || async {
        let list = gateway.operator().get("/v1/calls").await.body;
        (list["calls"].as_array().unwrap().len() == 3).then_some(list)
    })
    .await;
    for columns in [80, 100, 120] {
        let shown =
            gateway.cli(&["calls"]).env("NO_COLOR", "1").run_on_terminal(columns).await.stdout;
        let head: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            head,
            ["ENDED", "(UTC)", "TOOL", "OUTCOME", "TOOK", "BY", "ID"],
            "{columns}: {shown}"
        );
        assert!(shown.lines().all(|line| line.chars().count() <= usize::from(columns)), "{shown}");
        for call in list["calls"].as_array().unwrap() {
            // The displayed part of an id is enough to look up the call.
            let id = call["id"].as_str().unwrap();
            let row = shown.lines().find(|line| {
                line.split_whitespace().last().is_some_and(|last| id.starts_with(last))
            });
            let row = row.unwrap_or_else(|| panic!("{id} is not in {shown}"));
            assert!(row.contains("operator") && row.contains('s'), "{row}");
            let beginning = row.split_whitespace().last().unwrap();
            let one = gateway.cli(&["calls", beginning]).run().await;
            assert!(one.assert_code(0).stdout.contains(id), "{}", one.stdout);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_tool_is_described_to_whoever_wants_to_call_it() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _node = machine(&gateway).await;
    let shown = gateway.cli(&["tools", "sh_run"]).run().await;
    let shown = shown.assert_code(0).stdout.clone();
    assert!(
        shown.starts_with("sh_run: Run a command\n") && shown.contains("node mac-01, online"),
        "{shown}"
    );
    let row = |name: &str| {
        let line = shown
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {shown}"));
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("command")[1..3], ["string", "(required)"]);
    assert_eq!(row("timeout")[1..], ["number", "300", "In seconds"]);
    assert!(shown.ends_with("switchboard call sh_run command=COMMAND\n"), "{shown}");
    let json = gateway.cli(&["tools", "sh_run", "--json"]).run().await.json();
    assert_eq!(json["input_schema"]["required"], json!(["command"]));
    gateway.stop().await;
}

#[tokio::test]
async fn hints_say_what_to_type() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = machine(&gateway).await;
    let missing = gateway.cli(&["call", "sh.run"]).run().await;
    assert!(
        missing.assert_code(6).stderr.contains("hint: run `switchboard tools sh.run`"),
        "{}",
        missing.stderr
    );
    // An argument error from the tool itself does not refer to the schema.
    let call = gateway.cli(&["call", "sh.run", "command=x"]).start();
    let request = node.request().await;
    node.fail(&request.id, "invalid_args", "no such thing:\n    (a\n    ^").await;
    let refused = call.end().await;
    assert_eq!(
        refused.assert_code(6).stderr,
        "error: no such thing:\n           (a\n           ^\n"
    );
    let nobody = gateway.cli(&["nodes", "probe", "nobody", "git"]).run().await;
    assert!(
        nobody.assert_code(5).stderr.contains("hint: `switchboard nodes`"),
        "{}",
        nobody.stderr
    );
    let none = gateway.cli(&["eligibility", "--bin", "git"]).run().await;
    assert!(none.assert_code(5).stderr.contains("no host"), "{}", none.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn whoever_waits_for_a_node_is_told_so() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    drop(machine(&gateway).await);
    eventually("the node gone", || async {
        (gateway.operator().get("/v1/nodes").await.body["nodes"][0]["online"] == false)
            .then_some(())
    })
    .await;
    let call = gateway.cli(&["call", "sh.run", "command=x"]).start();
    call.warns("waiting for the node \"mac-01\" to reconnect, up to ").await;
    let mut node = machine(&gateway).await;
    let request = node.request().await;
    node.answer(&request.id, json!("back")).await;
    assert_eq!(call.end().await.assert_code(0).stdout, "back\n");
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_was_stopped_needs_no_doctor() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    SdkNode::echo(&gateway, "laptop").await.stop().await;
    let shown = eventually("the node's farewell", || async {
        let shown = gateway.cli(&["doctor"]).run().await;
        shown.stdout.contains("was stopped").then_some(shown)
    })
    .await;
    assert!(shown.assert_code(0).stdout.contains("note  the node \"laptop\""), "{}", shown.stdout);
    gateway.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_has_a_holder() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let dir = tempfile::tempdir().unwrap();
    let address = gateway.url.strip_prefix("http://").unwrap();
    let args = ["serve", "--data-dir", dir.path().to_str().unwrap(), "--listen", address];
    let second = Cli::new(SWITCHBOARD).args(&args).run().await;
    assert!(
        second.assert_code(1).stderr.contains(&format!("process {} (", gateway.pid())),
        "{}",
        second.stderr
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_says_what_it_cannot_be_called_and_that_nobody_answers() {
    let bad = Cli::new(SWITCHBOARD).args(&["node", "--id", "bad id"]).run().await;
    assert!(bad.assert_code(2).stderr.contains("laptop-2"), "{}", bad.stderr);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Cli::new(SWITCHBOARD)
        .args(&[
            "node",
            "--id",
            "a",
            "--data-dir",
            data.to_str().unwrap(),
            "--workspace",
            dir.path().to_str().unwrap(),
        ])
        .env("SWITCHBOARD_SERVER_LISTEN", "127.0.0.1:1")
        .start();
    node.warns("Start it with `switchboard up`").await;
    node.signal(rustix::process::Signal::TERM);
    node.end().await.assert_code(0);
}

#[tokio::test]
async fn a_message_that_has_waited_listens_no_more() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let answer = gateway
        .operator()
        .call("session_message", json!({ "message": "hello", "wait_ms": 50 }))
        .await
        .result();
    assert_eq!(answer["caller"], "left", "{answer}");
    let answer =
        gateway.operator().call("session_message", json!({ "message": "hello" })).await.result();
    assert_eq!(answer["caller"], "unknown", "{answer}");
    gateway.stop().await;
}
