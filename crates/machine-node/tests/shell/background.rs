//! Commands run in the background, and Process controls them.

use std::time::Duration;

use sa_node_sdk::ErrorKind;
use serde_json::{Value, json};

use crate::support::{Rig, gone, is_alive};

#[tokio::test]
async fn a_background_command_answers_at_once_with_every_field() {
    let rig = Rig::new();
    let started = rig.call("Bash", json!({ "command": "sleep 1000", "background": true })).await;
    assert_eq!(started["status"], "running");
    assert!(
        started["sessionId"].is_string()
            && started["startedAt"].is_i64()
            && started["tail"].is_string()
    );
    assert!(started["workdir"].is_string());
    assert_eq!(started.as_object().unwrap().len(), 6);
    assert!(is_alive(i32::try_from(started["pid"].as_i64().unwrap()).unwrap()));
}

#[tokio::test]
async fn a_command_that_ends_within_its_window_is_answered_as_any_other() {
    let rig = Rig::new();
    let result = rig.call("Bash", json!({ "command": "echo quick", "yieldMs": 120_000 })).await;
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("quick\n")));
    let error = rig
        .try_call("Process", json!({ "action": "poll", "sessionId": result["sessionId"] }))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("is not found or is not backgrounded"), "{error}");
}

#[tokio::test]
async fn a_command_that_outlasts_its_window_goes_on() {
    let rig = Rig::new();
    // This is far below the minimum of a window.
    let result =
        rig.call("Bash", json!({ "command": "read line; echo got $line", "yieldMs": -5 })).await;
    assert_eq!(result["status"], "running");
    let session = result["sessionId"].as_str().unwrap();
    rig.call("Process", json!({ "action": "submit", "sessionId": session, "data": "it" })).await;
    let poll = rig.ended(session).await;
    assert_eq!((&poll["status"], &poll["tail"]), (&json!("completed"), &json!("got it\n")));
}

#[tokio::test]
async fn poll_says_how_it_is() {
    let rig = Rig::new();
    let session = rig.background("echo begun; read line; exit 4").await;
    rig.says(&session, "begun").await;
    let poll = rig.process("poll", &session).await;
    assert_eq!(
        (&poll["running"], &poll["status"], &poll["exitCode"]),
        (&json!(true), &json!("running"), &Value::Null)
    );
    rig.process("submit", &session).await;
    let poll = rig.ended(&session).await;
    assert_eq!(
        (&poll["status"], &poll["exitCode"], &poll["signal"]),
        (&json!("failed"), &json!(4), &Value::Null)
    );
    assert_eq!(poll["tail"], "begun\n");
}

#[tokio::test]
async fn a_timeout_counts_in_the_background() {
    let rig = Rig::new();
    let args = json!({ "command": "sleep 1000", "background": true, "timeout": 200 });
    let started = rig.call("Bash", args).await;
    let poll = rig.ended(started["sessionId"].as_str().unwrap()).await;
    assert_eq!((&poll["status"], &poll["timedOut"]), (&json!("failed"), &json!(true)));
    assert_eq!(poll["signal"], "SIGTERM");
}

#[tokio::test]
async fn log_shows_lines_page_by_page() {
    let rig = Rig::new();
    let session = rig.background("seq 1 300; printf end").await;
    rig.ended(&session).await;
    let log = |offset: Value, limit: Value| json!({ "action": "log", "sessionId": session, "offset": offset, "limit": limit });
    let page = rig.process("log", &session).await;
    assert_eq!(
        (&page["totalLines"], &page["lines"], &page["offset"]),
        (&json!(301), &json!(200), &json!(0))
    );
    assert_eq!(page["totalChars"], 9 * 2 + 90 * 3 + 201 * 4 + 3);
    assert_eq!(
        (&page["truncated"], &page["status"], &page["exitCode"]),
        (&json!(false), &json!("completed"), &json!(0))
    );
    assert!(
        page["log"].as_str().unwrap().starts_with("1\n2\n")
            && page["log"].as_str().unwrap().ends_with("\n200")
    );
    assert_eq!(rig.call("Process", log(json!(299), json!(10))).await["log"], "300\nend");
    // At least one line is returned for any limit.
    assert_eq!(rig.call("Process", log(json!(4), json!(0))).await["log"], "5");
    assert_eq!(rig.call("Process", log(json!(9_999), json!(5))).await["log"], "");
}

#[tokio::test]
async fn log_says_what_came_before_what_is_kept() {
    let rig = Rig::new();
    let session = rig.background("seq 1 100000").await;
    rig.ended(&session).await;
    let page = rig.process("log", &session).await;
    let (dropped, kept) =
        (page["droppedLines"].as_u64().unwrap(), page["totalLines"].as_u64().unwrap());
    assert_eq!((&page["truncated"], dropped + kept), (&json!(true), 100_000));
    let second = page["log"].as_str().unwrap().lines().nth(1).unwrap();
    assert_eq!(second, (dropped + 2).to_string());
}

#[tokio::test]
async fn null_is_as_good_as_nothing() {
    let rig = Rig::new();
    let mut bash = json!({ "command": "echo here" });
    let mut process = json!({ "action": "list" });
    for (tool, args) in [("Bash", &mut bash), ("Process", &mut process)] {
        let schema = rig.tool(tool).input_schema().unwrap();
        for (name, property) in schema["properties"].as_object().unwrap() {
            if args.get(name).is_none() {
                assert_eq!(property["type"][1], "null", "{tool} {name}");
                args[name] = Value::Null;
            }
        }
        assert_eq!(
            args.as_object().unwrap().len(),
            schema["properties"].as_object().unwrap().len()
        );
    }
    assert_eq!(rig.call("Bash", bash).await["output"], "here\n");
    assert_eq!(rig.call("Process", process).await["count"], 0);
}

#[tokio::test]
async fn write_sends_it_as_it_is_and_submit_adds_enter() {
    let rig = Rig::new();
    let session = rig.background("read first; read second; echo \"[$first][$second]\"").await;
    let write =
        |action: &str, data: &str| json!({ "action": action, "sessionId": session, "data": data });
    let written = rig.call("Process", write("write", "a b")).await;
    assert_eq!((&written["status"], &written["bytesWritten"]), (&json!("running"), &json!(3)));
    assert_eq!(rig.call("Process", write("submit", " c")).await["bytesWritten"], 3);
    rig.call("Process", write("submit", "d")).await;
    assert_eq!(rig.ended(&session).await["tail"], "[a b c][d]\n");
    let error = rig.try_call("Process", write("write", "late")).await.unwrap_err();
    assert!(error.message().contains("has already exited"), "{error}");
}

#[tokio::test]
async fn a_terminal_in_the_background_takes_what_is_typed() {
    let rig = Rig::new();
    let args =
        json!({ "command": "read line; echo \"got $line\"", "background": true, "pty": true });
    let session = rig.call("Bash", args).await["sessionId"].as_str().unwrap().to_owned();
    rig.call("Process", json!({ "action": "submit", "sessionId": session, "data": "typed" })).await;
    assert_eq!(rig.ended(&session).await["tail"], "typed\r\ngot typed\r\n");
}

#[tokio::test]
async fn stdin_that_is_closed_is_said_to_be() {
    let rig = Rig::new();
    let session = rig.background("exec 0<&-; echo closed; sleep 1000").await;
    rig.says(&session, "closed").await;
    let args = json!({ "action": "write", "sessionId": session, "data": "x" });
    let error = rig.try_call("Process", args).await.unwrap_err();
    assert!(error.message().contains("is not writable"), "{error}");
}

#[tokio::test]
async fn stdin_that_nobody_reads_does_not_hold_the_writer() {
    let rig = Rig::new();
    let session = rig.background("sleep 1000").await;
    let args = json!({ "action": "write", "sessionId": session, "data": "x".repeat(1 << 20) });
    let error = rig.try_call("Process", args).await.unwrap_err();
    assert!(error.message().contains("does not read its stdin"), "{error}");
    let args =
        json!({ "action": "write", "sessionId": session, "data": "x".repeat((1 << 20) + 1) });
    assert_eq!(rig.try_call("Process", args).await.unwrap_err().kind(), ErrorKind::InvalidArgs);
}

#[tokio::test]
async fn kill_ends_it_and_all_that_it_started() {
    let rig = Rig::new();
    let session = rig.background("trap '' TERM; sleep 1000 & echo $! > pid; sleep 1000").await;
    let pids = rig.pids("pid", 1).await;
    let killed = rig.process("kill", &session).await;
    assert_eq!(
        (&killed["running"], &killed["status"], &killed["signal"]),
        (&json!(false), &json!("failed"), &json!("SIGKILL"))
    );
    gone(pids[0]).await;
    let again = rig
        .try_call("Process", json!({ "action": "kill", "sessionId": session }))
        .await
        .unwrap_err();
    assert!(again.message().contains("has already exited"), "{again}");
}

#[tokio::test]
async fn list_shows_the_newest_first() {
    let rig = Rig::new();
    assert_eq!(
        rig.call("Process", json!({ "action": "list" })).await,
        json!({ "count": 0, "sessions": [] })
    );
    let first = rig.background("true").await;
    rig.ended(&first).await;
    rig.bash("true").await;
    let second = rig.background("sleep 1000").await;
    let list = rig.call("Process", json!({ "action": "list" })).await;
    let ids: Vec<&str> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["sessionId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [&second, &first], "a command that was waited for is not among them");
    assert_eq!(list["count"], 2);
    let newest = &list["sessions"][0];
    assert_eq!((&newest["command"], &newest["status"]), (&json!("sleep 1000"), &json!("running")));
    assert!(
        newest["pid"].is_i64() && newest["startedAt"].is_i64() && newest["durationMs"].is_u64()
    );
}

#[tokio::test]
async fn every_action_but_list_needs_a_session() {
    let rig = Rig::new();
    for action in ["poll", "log", "write", "submit", "kill"] {
        for (id, kind) in [(json!(null), ErrorKind::InvalidArgs), (json!("x"), ErrorKind::NotFound)]
        {
            let error = rig
                .try_call("Process", json!({ "action": action, "sessionId": id }))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), kind, "{action} {id}");
        }
    }
    let error = rig.try_call("Process", json!({ "action": "dance" })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgs);
    for action in ["list", "poll", "log", "write", "submit", "kill"] {
        assert!(error.message().contains(&format!("`{action}`")), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_has_ended_is_kept_for_half_an_hour() {
    let rig = Rig::new();
    let session = rig.background("echo kept").await;
    rig.ended(&session).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(30 * 60 - 1)).await;
    assert_eq!(rig.process("poll", &session).await["tail"], "kept\n");
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::task::yield_now().await;
    let error = rig
        .try_call("Process", json!({ "action": "poll", "sessionId": session }))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(rig.call("Process", json!({ "action": "list" })).await["count"], 0);
}

#[tokio::test]
async fn one_owner_runs_three_quarters_of_the_maximum_at_once() {
    let rig = Rig::new();
    let mut last = String::new();
    for _ in 0..48 {
        last = rig.background("exec sleep 1000").await;
    }
    let error =
        rig.try_call("Bash", json!({ "command": "true", "background": true })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(rig.bash("true").await["exitCode"], 0, "one that is waited for is not left running");
    rig.process("kill", &last).await;
    rig.ended(&last).await;
    rig.background("true").await;
    rig.machine.shut_down().await;
}
