//! Operators add, list, restart and remove upstream servers while the gateway runs; the servers'
//! processes end with it.

use std::path::Path;

use sa_gateway_kit::upstream::{noted, until, upstream};
use sa_gateway_kit::{Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::upstream::server::{SERVER, stdio};

#[tokio::test]
async fn a_server_is_added_kept_restarted_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let env = format!("SERVER_DIR={}", dir.path().display());
    let add = [
        "upstream",
        "add",
        "test",
        "--env",
        &env,
        "--env",
        "KEY=canary-771",
        "--command",
        SERVER,
        "stdio",
    ];
    gateway.cli(&add).run().await.assert_code(0);
    gateway.cli(&add).run().await.assert_code(9);
    let ready = until(&gateway, "test", "ready").await;
    assert_eq!(ready["source"], "added");
    assert_eq!(
        (&ready["env"]["KEY"], &ready["command"]),
        (&json!("***"), &json!([SERVER, "stdio"])),
        "{ready}"
    );
    let list = gateway.cli(&["upstream", "list"]).run().await;
    assert!(
        list.assert_code(0).stdout.contains("ready") && !list.stdout.contains("canary-771"),
        "{}",
        list.stdout
    );
    let pid = noted(dir.path(), "pid").await;
    gateway.cli(&["upstream", "restart", "test"]).run().await.assert_code(0);
    eventually("another process", || async {
        (noted(dir.path(), "pid").await != pid).then_some(())
    })
    .await;
    until(&gateway, "test", "ready").await;

    let again = Setup::new().on(&gateway);
    gateway.stop().await;
    let gateway = again.spawn(SWITCHBOARD).await;
    assert_eq!(
        gateway.operator().call("test__echo", json!({ "text": "kept" })).await.result()["text"],
        "kept"
    );
    gateway.cli(&["upstream", "remove", "test"]).run().await.assert_code(0);
    assert_eq!(gateway.operator().tool_names().await, Vec::<String>::new());
    assert_eq!(upstream(&gateway, "test").await, Value::Null);
    gateway.cli(&["upstream", "remove", "test"]).run().await.assert_code(5);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_at_once() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let added =
        gateway.cli(&["upstream", "add", "bad", "--command", "/no/such/program"]).run().await;
    added.assert_code(0);
    assert!(added.stdout.starts_with("added bad\nruns in /"), "{}", added.stdout);
    for words in
        ["warning: it does not run", "/no/such/program", "no such program", "upstream remove bad"]
    {
        assert!(added.stderr.contains(words), "{words}: {}", added.stderr);
    }
    // A narrow table shortens the error that is shown completely here.
    let shown = gateway.cli(&["upstream", "show", "bad"]).run().await;
    shown.assert_code(0);
    let error = upstream(&gateway, "bad").await["last_error"].as_str().unwrap().to_owned();
    assert!(shown.stdout.contains(&error), "{}", shown.stdout);
    gateway.cli(&["upstream", "show", "none"]).run().await.assert_code(5);
    let doctor = gateway.cli(&["doctor"]).run().await;
    doctor.assert_code(1);
    let said = format!("{}{}", doctor.stdout, doctor.stderr);
    assert!(said.contains("switchboard upstream remove bad"), "{said}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_program_is_looked_for_from_where_somebody_is() {
    let (dir, gateway) = (tempfile::tempdir().unwrap(), Setup::new().spawn(SWITCHBOARD).await);
    std::os::unix::fs::symlink(SERVER, dir.path().join("server")).unwrap();
    let add = [
        "upstream",
        "add",
        "test",
        "--isolate",
        "--timeout",
        "3s",
        "--cwd",
        ".",
        "--command",
        "./server",
        "stdio",
    ];
    gateway.cli(&add).folder(dir.path()).run().await.assert_code(0);
    let ready = until(&gateway, "test", "ready").await;
    let place = dir.path().canonicalize().unwrap();
    assert_eq!(
        (&ready["command"][0], &ready["cwd"]),
        (&json!(place.join("server")), &json!(place)),
        "{ready}"
    );
    assert_eq!((&ready["isolate"], &ready["timeout_ms"]), (&json!(true), &json!(3_000)), "{ready}");
    let shown = gateway.cli(&["upstream", "show", "test"]).run().await.stdout;
    for (fact, value) in
        [("timeout", "3s"), ("folder", place.to_str().unwrap()), ("isolate", "true")]
    {
        let line = shown.lines().find(|line| line.trim_start().starts_with(fact));
        assert!(line.is_some_and(|line| line.ends_with(value)), "{fact}: {shown}");
    }
    // The old name of the option still works.
    let old = ["upstream", "add", "old", "--timeout-ms", "4000", "--command", SERVER, "stdio"];
    gateway.cli(&old).run().await.assert_code(0);
    assert_eq!(upstream(&gateway, "old").await["timeout_ms"], 4_000);
    gateway.stop().await;
}

#[tokio::test]
async fn a_program_runs_in_the_folder_of_the_command_that_added_it() {
    let (dir, gateway) = (tempfile::tempdir().unwrap(), Setup::new().spawn(SWITCHBOARD).await);
    let here = dir.path().canonicalize().unwrap();
    let add = ["upstream", "add", "test", "--", SERVER, "stdio"];
    let added = gateway.cli(&add).folder(dir.path()).run().await;
    added.assert_code(0);
    assert!(added.stdout.contains(&format!("runs in {}\n", here.display())), "{}", added.stdout);
    assert_eq!(until(&gateway, "test", "ready").await["cwd"], json!(here));
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_in_a_variable_that_the_gateway_lacks_is_explained() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let bearer = "env:UNSET_ISSUES_TOKEN";
    let add = ["upstream", "add", "web", "http://127.0.0.1:9/mcp", "--bearer", bearer];
    // The variable of the command is not a variable of the gateway.
    let cli = gateway.cli(&add).env("UNSET_ISSUES_TOKEN", "x");
    let added = cli.run().await;
    added.assert_code(0);
    let doctor = gateway.cli(&["doctor"]).run().await;
    for told in [&added.stderr, &doctor.stdout] {
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("restart the gateway with UNSET_ISSUES_TOKEN"), "{told}");
        assert!(told.contains("file:PATH"), "{told}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn processes_and_what_they_started_end_with_a_gateway_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut gateway =
        Setup::new().config(&stdio("test", &[], dir.path(), "")).spawn(SWITCHBOARD).await;
    until(&gateway, "test", "ready").await;
    let left = gateway.operator().call("test__leave_child", json!({})).await.result();
    let child = left["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{left}")).to_owned();
    let pid = noted(dir.path(), "pid").await;
    assert!(runs(&pid) && runs(&child));
    gateway.kill().await;
    for process in [pid, child] {
        eventually("its end", || async { (!runs(&process)).then_some(()) }).await;
    }
}

/// Returns whether a process is running and not a zombie.
fn runs(pid: &str) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn an_option_of_ours_behind_the_program_is_pointed_out() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let swallowed =
        ["upstream", "add", "a", "--command", SERVER, "stdio", "--timeout", "5s", "--json"];
    let added = gateway.cli(&swallowed).run().await;
    added.assert_code(0);
    let note = "note: passed to the program: --timeout and --json";
    assert!(
        added.stderr.contains(note) && added.stderr.contains("before --command"),
        "{}",
        added.stderr
    );
    assert_eq!(
        upstream(&gateway, "a").await["command"],
        json!([SERVER, "stdio", "--timeout", "5s", "--json"])
    );
    // Arguments after `--` belong to the program, so there is no warning.
    let clear = ["upstream", "add", "b", "--timeout", "90s", "--", SERVER, "stdio", "--timeout=5s"];
    let added = gateway.cli(&clear).run().await;
    added.assert_code(0);
    assert_eq!(added.stderr, "");
    let server = upstream(&gateway, "b").await;
    assert_eq!(
        (&server["command"], &server["timeout_ms"]),
        (&json!([SERVER, "stdio", "--timeout=5s"]), &json!(90_000))
    );
    let both = ["upstream", "add", "c", "http://127.0.0.1:1/mcp", "--", SERVER];
    gateway.cli(&both).run().await.assert_code(2);
    // An argument that is unknown to the gateway causes no warning.
    let added = gateway
        .cli(&["upstream", "add", "d", "--command", SERVER, "stdio", "--verbose"])
        .run()
        .await;
    assert_eq!(added.assert_code(0).stderr, "");
    gateway.stop().await;
}
