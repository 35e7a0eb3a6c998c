//! `switchboard call` prints only the result on stdout and progress on stderr. Ctrl-C cancels, and
//! each kind of failure has its exit code.

use std::time::Duration;

use rustix::process::Signal;
use sa_gateway_kit::{Cli, Hello, Message, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

#[tokio::test]
async fn only_the_result_is_on_stdout() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let ended = gateway.cli(&["call", "demo_countdown", "--arg", "from=2"]).run().await;
    ended.assert_code(0);
    assert_eq!(ended.json(), json!({ "counted_from": 2 }));
    assert!(
        ended.stderr.contains("2 to go") && ended.stderr.contains("1 to go"),
        "{}",
        ended.stderr
    );

    let ended = gateway
        .cli(&["call", "demo_echo", "-a", "n=5", "-a", "s:=5", "-a", "text=a b", "--json"])
        .run()
        .await;
    let body = ended.assert_code(0).json();
    assert_eq!(
        (&body["ok"], &body["result"]),
        (&json!(true), &json!({ "n": 5, "s": "5", "text": "a b" }))
    );
    assert!(body["call_id"].is_string());

    let ended = gateway
        .cli(&["call", "demo_echo", "--args-json", "-"])
        .run_with("{\"text\":\"from stdin\"}")
        .await;
    assert_eq!(ended.assert_code(0).json(), json!({ "text": "from stdin" }));
    gateway.stop().await;
}

/// A program receives the character unchanged, and a terminal shows an equivalent escape.
#[tokio::test]
async fn a_character_that_nobody_sees_is_what_it_was() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let england = "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}";
    let call = || gateway.cli(&["call", "demo_echo", &format!("text={england}")]);
    let piped = call().run().await;
    assert_eq!(piped.assert_code(0).stdout, format!("{{\n  \"text\": \"{england}\"\n}}\n"));
    let shown = call().run_on_terminal(80).await;
    assert!(!shown.stdout.contains('\u{e0067}'), "{}", shown.stdout);
    assert_eq!(shown.assert_code(0).json(), json!({ "text": england }));
    gateway.stop().await;
}

/// Numbers outside all machine ranges and duplicate keys are passed from the tool to the reader
/// unchanged.
#[tokio::test]
async fn a_result_says_what_the_tool_wrote() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let started = gateway.cli(&["call", "a.b"]).start();
    let request = node.request().await;
    let result = r#"{"n":12345678901234567890123,"one":1.00,"n":2}"#;
    let frame = format!(
        r#"{{"type":"tool_response","request_id":"{}","ok":true,"result":{result}}}"#,
        request.id
    );
    node.send_raw(Message::text(frame)).await;
    let expected = "{\n  \"n\": 12345678901234567890123,\n  \"one\": 1.00,\n  \"n\": 2\n}\n";
    assert_eq!(started.end().await.assert_code(0).stdout, expected);
    gateway.stop().await;
}

#[tokio::test]
async fn every_kind_of_failure_has_its_exit_code() {
    let gateway = Setup::new()
        .config("[limits]\nreconnect_wait_ms = 1\nqueue_wait_ms = 1\npending_per_node = 1");
    let gateway = gateway.spawn(SWITCHBOARD).await;
    let schema = json!({ "type": "object", "required": ["query"] });
    let node = Hello::new("n")
        .capability("a")
        .describe(json!({ "name": "a.find", "input_schema": schema }));
    let mut node = node.connect(&gateway).await;
    for (kind, code) in
        [("invalid_args", 6), ("not_allowed", 4), ("not_found", 5), ("timeout", 7), ("failed", 1)]
    {
        let started = gateway.cli(&["call", "a.b"]).start();
        let request = node.request().await;
        node.fail(&request.id, kind, &format!("because of {kind}")).await;
        let ended = started.end().await;
        ended.assert_code(code);
        assert!(ended.stderr.contains(&format!("error: because of {kind}")), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
    let missing = gateway.cli(&["call", "a.find"]).run().await;
    missing.assert_code(6);
    assert!(missing.stderr.contains("query"), "{}", missing.stderr);
    gateway.cli(&["call", "a.b", "--timeout", "50"]).run().await.assert_code(7);
    let request = node.request().await;
    node.cancelled(&request).await;
    let unknown = gateway.cli(&["call", "nothing"]).run().await;
    unknown.assert_code(5);
    assert!(unknown.stderr.contains("hint: "), "{}", unknown.stderr);
    gateway.cli(&["call", "a.b", "--arg", "nonsense"]).run().await.assert_code(2);
    let object = gateway.cli(&["call", "a.b", "{\"x\":1}"]).run().await;
    assert!(object.assert_code(2).stderr.contains("--json"), "{}", object.stderr);
    for (command, limit) in [("calls", "0"), ("calls", "x"), ("calls", "501"), ("audit", "0")] {
        let refused = gateway.cli(&[command, "--limit", limit]).run().await;
        assert!(refused.assert_code(2).stderr.contains("from 1 to 500"), "{}", refused.stderr);
    }
    let outcome = gateway.cli(&["calls", "--outcome", "nonsense"]).run().await;
    assert!(
        outcome.assert_code(2).stderr.contains("--outcome is \"nonsense\", but must be ok"),
        "{}",
        outcome.stderr
    );
    gateway.cli(&["call", "a.b", "--args-json", "{"]).run().await.assert_code(2);
    // Handled like any other unknown name.
    for nonsense in ["not-an-id", "zzz", "", "..", &"f".repeat(500)] {
        let ended = gateway.cli(&["calls", nonsense]).run().await;
        assert!(ended.assert_code(5).stderr.len() < 300, "{}", ended.stderr);
        gateway.cli(&["calls", "--cancel", nonsense]).run().await.assert_code(5);
    }
    gateway.cli(&["tools"]).env("SWITCHBOARD_TOKEN", "wrong").run().await.assert_code(4);
    gateway.cli(&["frobnicate"]).run().await.assert_code(2);
    let nowhere = gateway.cli(&["tools", "--url", "http://127.0.0.1:1"]).run().await;
    nowhere.assert_code(3);
    assert!(
        nowhere.stderr.contains("127.0.0.1:1") && nowhere.stderr.contains("hint: "),
        "{}",
        nowhere.stderr
    );
    drop(node);
    gateway.cli(&["call", "a.b"]).run().await.assert_code(8);

    let help = Cli::new(SWITCHBOARD).args(&["--help"]).run().await;
    for code in ["0 success", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10 ", "130 "] {
        assert!(help.stdout.contains(code), "the help names the codes: {}", help.stdout);
    }
    gateway.stop().await;
}

/// `--timeout` is a hard limit, and each progress report restarts `--idle-timeout`.
#[tokio::test]
async fn progress_extends_the_idle_timeout_and_not_the_timeout() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let started = gateway.cli(&["call", "a.b", "--idle-timeout", "1s", "--timeout", "1m"]).start();
    let request = node.request().await;
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        beat.tick().await;
        node.progress(&request.id, 1.0).await;
    }
    node.answer(&request.id, json!({ "done": true })).await;
    assert_eq!(started.end().await.assert_code(0).json(), json!({ "done": true }));

    let started = gateway.cli(&["call", "a.b", "--timeout", "500"]).start();
    let request = node.request().await;
    let mut reports = 0;
    loop {
        tokio::select! {
            frame = node.recv() => {
                assert_eq!((&frame["type"], &frame["reason"]), (&json!("tool_cancel"), &json!("deadline")), "{frame}");
                break;
            }
            _ = beat.tick() => {
                reports += 1;
                assert!(reports < 100, "the progress extends the timeout");
                node.progress(&request.id, 1.0).await;
            }
        }
    }
    started.end().await.assert_code(7);

    let silent = gateway.cli(&["call", "a.b", "--idle-timeout", "50ms"]).run().await;
    silent.assert_code(7);
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_whose_gateway_dies_may_have_had_an_effect() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (tail, channel) =
        (gateway.cli(&["tail"]).start(), gateway.cli(&["channel", "tail", "room"]).start());
    tail.warns("watching").await;
    channel.warns("following").await;
    // First the node disconnects during a call, then the gateway.
    let without_node = gateway.cli(&["call", "a.b"]).start();
    node.request().await;
    drop(node);
    let ended = without_node.end().await;
    ended.assert_code(10);
    assert!(ended.stderr.contains("may have had an effect"), "{}", ended.stderr);

    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let started = gateway.cli(&["call", "a.b"]).start();
    node.request().await;
    gateway.kill().await;
    let ended = started.end().await;
    ended.assert_code(10);
    assert!(
        ended.stderr.contains("lost during the request") && ended.stderr.contains("may have had"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("cannot reach"), "{}", ended.stderr);
    for tail in [tail, channel] {
        let ended = tail.end().await;
        ended.assert_code(3);
        assert!(
            ended.stderr.contains("lost the connection") && !ended.stderr.contains("cannot reach"),
            "{}",
            ended.stderr
        );
    }
}

#[tokio::test]
async fn ctrl_c_cancels_the_call() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let started = gateway.cli(&["call", "a.b"]).start();
    let request = node.request().await;
    node.progress(&request.id, 1.0).await;
    started.warns("1").await;
    started.signal(Signal::INT);
    assert_eq!(node.cancelled(&request).await, "requested");
    let ended = started.end().await;
    ended.assert_code(130);
    assert_eq!(ended.stdout, "");
    gateway.stop().await;
}

#[tokio::test]
async fn json_prints_what_the_route_returns() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let call = gateway.cli(&["--json", "call", "a.b"]).run().await.json();
    let id = call["call_id"].as_str().unwrap().to_owned();
    eventually("the record", || async {
        (operator.get(&format!("/v1/calls/{id}")).await.body["state"] == "ended").then_some(())
    })
    .await;
    // Removes values that change with time.
    let still = |mut value: Value| {
        if let Some(status) = value.as_object_mut() {
            status.remove("uptime_s");
            status.remove("budgets");
        }
        for node in value["nodes"].as_array_mut().into_iter().flatten() {
            node["for_ms"] = json!(0);
        }
        value
    };
    let one = format!("/v1/calls/{id}");
    for (args, path) in [
        (vec!["tools"], "/v1/tools"),
        (vec!["nodes"], "/v1/nodes"),
        (vec!["token", "list"], "/v1/tokens"),
        (vec!["calls"], "/v1/calls"),
        (vec!["calls", id.as_str()], one.as_str()),
        (vec!["audit"], "/v1/audit"),
        (vec!["status"], "/v1/status"),
    ] {
        let printed = gateway.cli(&args).args(&["--json"]).run().await;
        assert_eq!(
            still(printed.assert_code(0).json()),
            still(operator.get(path).await.body),
            "{args:?}"
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_command_cannot_use_is_named() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let ended = gateway.cli(&["tools"]).env("SWITCHBOARD_TOKEN", "one\ntwo").run().await;
    ended.assert_code(2);
    assert!(
        ended.stderr.contains("line break") && ended.stderr.contains("SWITCHBOARD_TOKEN"),
        "{}",
        ended.stderr
    );
    let file = gateway.config_file();
    let ended = gateway.cli(&["tools", "--ca", file.to_str().unwrap()]).run().await;
    ended.assert_code(2);
    assert!(
        ended.stderr.contains("no certificate") && ended.stderr.contains("--ca"),
        "{}",
        ended.stderr
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_tools_calls_are_found_by_whichever_name_it_has() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = sa_gateway_kit::Hello::new("n").tool("notes.read").connect(&gateway).await;
    let operator = gateway.operator();
    let running = operator.call_later("notes.read", serde_json::json!({}));
    let request = node.request().await;
    for name in ["notes_read", "notes.read"] {
        let found = gateway.cli(&["calls", "--tool", name, "--json"]).run().await.json();
        assert_eq!(found["calls"].as_array().unwrap().len(), 1, "{found}");
    }
    node.answer(&request.id, serde_json::json!(1)).await;
    running.await.unwrap();
    let _node = node.echo();
    operator.call("notes_read", serde_json::json!({})).await;
    for name in ["notes_read", "notes.read"] {
        let found = sa_gateway_kit::eventually("both calls", || async {
            let found = gateway.cli(&["calls", "--tool", name, "--json"]).run().await.json();
            (found["calls"].as_array().unwrap().len() == 2).then_some(found)
        })
        .await;
        // The list uses one name for both.
        let ids: Vec<&str> = found["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| call["id"].as_str().unwrap())
            .collect();
        let shown = gateway.cli(&["calls"]).run().await.stdout;
        assert_eq!(shown.matches("notes_read").count(), 2, "{shown}");
        let first = gateway.cli(&["calls", ids[1]]).run().await.stdout;
        assert!(
            first.starts_with("notes_read  ok") && first.contains("called    notes.read"),
            "{first}"
        );
    }
    let none = gateway.cli(&["calls", "--tool", "notes_write", "--json"]).run().await.json();
    assert_eq!(none["calls"], serde_json::json!([]));
    gateway.stop().await;
}

#[tokio::test]
async fn the_beginning_of_an_id_will_do_where_it_is_clear() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut ids = Vec::new();
    for number in 0..2 {
        let call = gateway.operator().call_later("a.b", json!({ "args": { "number": number } }));
        let request = node.request().await;
        node.answer(&request.id, json!(number)).await;
        call.await.unwrap();
        ids.push(request.id);
    }
    eventually("both records", || async {
        let list = gateway.operator().get("/v1/calls?tool=a.b").await.body;
        (list["calls"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    let same = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    let clear = &ids[0][..=same];
    let shown = gateway.cli(&["calls", clear, "--json"]).run().await.assert_code(0).json();
    assert_eq!(
        (&shown["id"], &shown["args"]["json"]),
        (&json!(ids[0]), &json!({ "number": 0 })),
        "{shown}"
    );
    // Upper-case letters match the same id.
    gateway.cli(&["calls", &clear.to_uppercase()]).run().await.assert_code(0);
    let several = gateway.cli(&["calls", &ids[0][..same]]).run().await;
    several.assert_code(2);
    assert!(ids.iter().all(|id| several.stderr.contains(id)), "{}", several.stderr);
    gateway.cli(&["calls", "ffffffff"]).run().await.assert_code(5);
    // Other principals cannot find out about these calls.
    let (_, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    gateway
        .cli(&["calls", &ids[0][..same]])
        .env("SWITCHBOARD_TOKEN", &token)
        .run()
        .await
        .assert_code(5);

    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    let same = ids
        .iter()
        .map(|id| id.bytes().zip(request.id.bytes()).take_while(|(a, b)| a == b).count())
        .max()
        .unwrap();
    // Only running calls are matched, so a short prefix is unique.
    gateway.cli(&["calls", "--cancel", &request.id[..same.min(4)]]).run().await.assert_code(0);
    node.cancelled(&request).await;
    call.await.unwrap().assert_problem(499, "cancelled");
    gateway.cli(&["calls", "--cancel", &request.id[..4]]).run().await.assert_code(5);
    let over = gateway.cli(&["calls", "--cancel", &request.id]).run().await;
    assert!(over.assert_code(9).stderr.contains("has already ended: cancelled"), "{}", over.stderr);
    let path = format!("/v1/calls/{}", request.id);
    gateway.operator().delete(&path).await.assert_problem(409, "conflict");
    // Other principals cannot find out about calls this way either.
    gateway.agent(&token).delete(&path).await.assert_problem(404, "not_found");
    gateway.stop().await;
}

#[tokio::test]
async fn the_list_is_in_the_order_of_the_times_that_it_shows() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut calls = Vec::new();
    for number in 0..3 {
        let call = gateway.operator().call_later("a.b", json!({ "args": { "number": number } }));
        calls.push((node.request().await, call));
    }
    // The call that started last ends first.
    for (request, call) in calls.into_iter().rev() {
        node.answer(&request.id, json!(0)).await;
        call.await.unwrap().result();
    }
    let list = eventually("all records", || async {
        let list = gateway.cli(&["calls"]).run().await;
        (list.assert_code(0).stdout.lines().count() == 4).then_some(list.stdout)
    })
    .await;
    assert!(list.starts_with("ENDED"), "{list}");
    let times: Vec<&str> = list.lines().skip(1).map(|row| &row[..23]).collect();
    assert!(times.is_sorted_by(|later, earlier| later >= earlier), "{list}");
}
