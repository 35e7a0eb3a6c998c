//! A command in the foreground: its environment, its result, and its end.

use sa_node_sdk::ErrorKind;
use serde_json::{Value, json};

use crate::support::{Rig, gone, soon};

#[tokio::test]
async fn a_command_that_succeeds_answers_with_every_field() {
    let rig = Rig::new();
    let result = rig.bash("echo hello; echo oops >&2").await;
    assert_eq!(result["status"], "completed");
    assert_eq!(result["exitCode"], 0);
    assert_eq!(result["signal"], Value::Null);
    assert_eq!(result["timedOut"], false);
    assert_eq!(result["output"], "hello\noops\n");
    assert_eq!(result["tail"], "hello\noops\n");
    assert_eq!(result["truncated"], false);
    assert_eq!(result["workdir"], rig.workspace().to_str().unwrap());
    let (started, ended) =
        (result["startedAt"].as_i64().unwrap(), result["endedAt"].as_i64().unwrap());
    assert!(started > 1_600_000_000_000 && ended >= started);
    assert_eq!(result["durationMs"].as_i64().unwrap(), ended - started);
    uuid::Uuid::parse_str(result["sessionId"].as_str().unwrap()).unwrap();
    assert_eq!(result.as_object().unwrap().len(), 12);
}

#[tokio::test]
async fn a_command_that_fails_is_a_result_and_no_error() {
    let rig = Rig::new();
    let result = rig.bash("exit 3").await;
    assert_eq!((&result["status"], &result["exitCode"]), (&json!("failed"), &json!(3)));
    let result = rig.bash("kill -9 $$").await;
    assert_eq!((&result["status"], &result["exitCode"]), (&json!("failed"), &Value::Null));
    assert_eq!(result["signal"], "SIGKILL");
}

#[tokio::test]
async fn the_login_shell_runs_it() {
    for (given, expected) in [
        ("/bin/bash", "/bin/bash -lc "),
        ("/bin/dash", "/bin/dash -lc "),
        ("nonsense", "/bin/sh -lc "),
    ] {
        let rig = Rig::with(|options| options.environment.0.push(("SHELL".into(), given.into())));
        std::fs::write(rig.dir.path().join("home/.profile"), "export FROM_PROFILE=yes").unwrap();
        let result = rig.bash("tr '\\0' ' ' < /proc/$$/cmdline; echo; echo $FROM_PROFILE").await;
        let output = result["output"].as_str().unwrap();
        assert!(output.starts_with(expected) && output.ends_with("\nyes\n"), "{given}: {output}");
    }
}

#[tokio::test]
async fn a_relative_workdir_is_one_of_the_workspace() {
    let rig = Rig::new();
    std::fs::create_dir(rig.workspace().join("sub")).unwrap();
    let result = rig.call("Bash", json!({ "command": "pwd", "workdir": "sub" })).await;
    assert!(result["output"].as_str().unwrap().ends_with("/sub\n"));
    assert!(result["workdir"].as_str().unwrap().ends_with("/sub"));
    let result = rig.call("Bash", json!({ "command": "pwd", "workdir": "/" })).await;
    assert_eq!((&result["output"], &result["workdir"]), (&json!("/\n"), &json!("/")));
}

#[tokio::test]
async fn what_cannot_be_run_is_refused() {
    let rig = Rig::new();
    std::fs::write(rig.workspace().join("file"), "").unwrap();
    for (args, kind, words) in [
        (json!({}), ErrorKind::InvalidArgs, "command"),
        (json!({ "command": "" }), ErrorKind::InvalidArgs, "must not be empty"),
        (json!({ "command": " \n" }), ErrorKind::InvalidArgs, "must not be empty"),
        (json!({ "command": "a\u{0}b" }), ErrorKind::InvalidArgs, "NUL"),
        (json!({ "command": "x".repeat(131_072) }), ErrorKind::InvalidArgs, "131071"),
        (json!({ "command": "true", "timeout": -1 }), ErrorKind::InvalidArgs, "timeout"),
        (json!({ "command": "true", "workdir": "none" }), ErrorKind::NotFound, "does not exist"),
        (
            json!({ "command": "true", "workdir": "file" }),
            ErrorKind::InvalidArgs,
            "not a directory",
        ),
    ] {
        let error = rig.try_call("Bash", args.clone()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{args}");
        assert!(error.message().contains(words), "{args}: {error}");
    }
    // This is the maximum length.
    let result = rig.bash(&format!("true {}", "x".repeat(131_071 - 5))).await;
    assert_eq!(result["exitCode"], 0);
}

#[tokio::test]
async fn arguments_that_are_not_known_are_ignored_and_named() {
    let rig = Rig::new();
    let result = rig.call("Bash", json!({ "command": "echo hi", "description": "says hi" })).await;
    assert_eq!(result["output"], "hi\n");
    assert_eq!(result["_meta"], json!({ "switchboard/ignored_arguments": ["description"] }));
    let listed = rig.call("Process", json!({ "action": "list", "description": "lists" })).await;
    assert_eq!(listed["_meta"], json!({ "switchboard/ignored_arguments": ["description"] }));
}

#[tokio::test]
async fn stdin_is_empty_and_the_order_of_output_is_true() {
    let rig = Rig::new();
    assert_eq!(rig.bash("cat; echo done").await["output"], "done\n");
    let result = rig.bash("for i in 1 2 3 4 5 6 7 8; do echo o$i; echo e$i >&2; done").await;
    let expected: Vec<String> =
        (1..=8).flat_map(|number| [format!("o{number}"), format!("e{number}")]).collect();
    assert_eq!(result["output"].as_str().unwrap().lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn output_is_text_whatever_its_bytes_are() {
    let rig = Rig::new();
    // The bytes are written one at a time, so that reads fall between the bytes of a character.
    let result = rig
        .bash(r"for byte in '\303' '\251' '\360' '\237' '\230' '\200' '\377'; do printf $byte; /bin/true; done")
        .await;
    assert_eq!(result["output"], "é😀\u{fffd}");
    assert_eq!(rig.bash(r"printf 'a\342\202'").await["output"], "a\u{fffd}");
}

#[tokio::test]
async fn the_last_characters_are_kept() {
    let rig = Rig::new();
    let result = rig.bash("head -c 199999 /dev/zero | tr '\\0' x; printf é").await;
    assert_eq!(result["truncated"], false);
    assert_eq!(result["output"].as_str().unwrap().chars().count(), 200_000);
    assert_eq!(result["tail"].as_str().unwrap().chars().count(), 4_000);
    let result = rig.bash("printf first; head -c 200000 /dev/zero | tr '\\0' x; printf last").await;
    assert_eq!(result["truncated"], true);
    let output = result["output"].as_str().unwrap();
    assert_eq!(output.chars().count(), 200_000);
    assert!(!output.contains("first") && output.ends_with("xlast"));
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_takes_little_memory_and_its_end_is_kept() {
    let rig = Rig::new();
    rig.bash("true").await;
    let before = peak();
    let result = rig.bash("head -c 67108864 /dev/zero | tr '\\0' y; printf END").await;
    assert_eq!((&result["truncated"], &result["exitCode"]), (&json!(true), &json!(0)));
    assert!(result["output"].as_str().unwrap().ends_with("yyyEND"));
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "64 MB of output took {grown} KB");
}

/// Returns the peak memory of this process, in KB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_timeout_ends_it_politely() {
    let rig = Rig::new();
    let command = "trap 'echo bye; exit 7' TERM; echo ready; echo $$ > pids; while :; do :; done";
    let (result, _) = rig.time_out(command, 1).await;
    assert_eq!((&result["status"], &result["timedOut"]), (&json!("failed"), &json!(true)));
    assert_eq!((&result["exitCode"], &result["signal"]), (&json!(7), &Value::Null));
    assert_eq!(result["output"], "ready\nbye\n");
}

#[tokio::test]
async fn a_timeout_ends_what_does_not_listen() {
    let rig = Rig::new();
    let command = "trap '' TERM; echo $$ > pids; while :; do sleep 0.01; done";
    let (result, pids) = rig.time_out(command, 1).await;
    assert_eq!((&result["timedOut"], &result["signal"]), (&json!(true), &json!("SIGKILL")));
    gone(pids[0]).await;
}

#[tokio::test]
async fn a_cancel_ends_it_at_once() {
    let rig = Rig::new();
    let (cancel, call) = rig.cancellable(
        json!({ "command": "sleep 1000 & echo $! > pid; echo $$ >> pid; sleep 1000" }),
    );
    let pids = rig.pids("pid", 2).await;
    cancel.cancel();
    let error = soon(call).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    for pid in pids {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_command_along() {
    let rig = Rig::new();
    let (_, call) = rig.cancellable(json!({ "command": "echo $$ > pid; sleep 1000" }));
    let pids = rig.pids("pid", 1).await;
    call.abort();
    gone(pids[0]).await;
}

#[tokio::test]
async fn the_nodes_own_variables_are_not_a_commands() {
    let rig = Rig::with(|options| {
        for name in ["SA_NODE_TOKEN", "SWITCHBOARD_TOKEN", "SA_SHELL_SESSION"] {
            options.environment.0.push((name.into(), "geheim".into()));
        }
    });
    assert!(!format!("{:?}", rig.machine).contains("geheim"));
    let result = rig.bash("env").await;
    let output = result["output"].as_str().unwrap();
    let ours: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("SA_") || line.starts_with("SWITCHBOARD_"))
        .collect();
    assert_eq!(ours, [format!("SA_SHELL_SESSION={}", result["sessionId"].as_str().unwrap())]);
    // Nor the variables of the supervisor process.
    let above = rig.bash("tr '\\0' '\\n' < /proc/$PPID/environ | grep -c ^SA_").await;
    assert_eq!(above["output"], "1\n");
}

#[tokio::test]
async fn a_terminal_is_given_where_it_is_asked_for() {
    let rig = Rig::new();
    let command =
        "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM && tty > /dev/tty";
    let result = rig.call("Bash", json!({ "command": command, "pty": true })).await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("24 80\r\nxterm-256color\r\n/dev/pts/"), "{output:?}");
    let result = rig
        .call("Bash", json!({ "command": "stty size", "pty": true, "columns": 132, "rows": 0 }))
        .await;
    assert_eq!(result["output"], "1 132\r\n");
    assert_eq!(rig.bash("test -t 0 || test -t 1 || echo none").await["output"], "none\n");
}

#[tokio::test]
async fn a_signal_that_a_pipe_sends_works_as_in_any_shell() {
    let rig = Rig::new();
    let result = rig.bash("yes | head -1; set -o pipefail 2>/dev/null; echo done").await;
    assert_eq!(result["output"], "y\ndone\n");
}

#[tokio::test]
async fn the_tool_says_what_it_is() {
    let rig = Rig::new();
    for (name, required) in [("Bash", "command"), ("Process", "action")] {
        let tool = rig.tool(name);
        assert!(
            tool.title().is_some()
                && tool.description().is_some()
                && tool.output_schema().is_some()
        );
        assert_eq!(tool.capabilities(), ["shell.exec"]);
        assert_eq!(tool.annotations().unwrap()["destructiveHint"], true);
        let schema = tool.input_schema().unwrap();
        assert_eq!(
            (&schema["required"], schema.get("additionalProperties")),
            (&json!([required]), None)
        );
    }
    let bash = rig.tool("Bash");
    assert_eq!(bash.input_schema().unwrap()["properties"]["timeout"]["default"], 300_000);
    assert!(bash.timeout().unwrap().as_millis() > 300_000);
    let process = rig.tool("Process").input_schema().unwrap();
    assert_eq!(process["properties"]["limit"]["default"], 200);
}

#[tokio::test]
async fn a_node_that_goes_takes_no_more_commands() {
    let rig = Rig::new();
    rig.machine.shut_down().await;
    let error = rig.try_call("Bash", json!({ "command": "true" })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}
