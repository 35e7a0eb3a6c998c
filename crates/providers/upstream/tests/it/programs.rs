//! The tools of an upstream MCP server work like any others: they are listed before it runs,
//! called, cancelled and recorded.

use sa_testkit::upstream::{kill, noted, until, upstream};
use sa_testkit::{Agent, Gateway, Setup, eventually, soon};
use serde_json::json;
use tempfile::TempDir;

use crate::serve::Serve as _;
use crate::server::{server_program, stdio};

async fn start(args: &[&str], more: &str) -> (Gateway, TempDir, Agent) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("test", args, dir.path(), more)).serve().await;
    let agent = gateway.operator();
    (gateway, dir, agent)
}

#[tokio::test]
async fn tools_are_listed_with_the_server_s_name_and_called() {
    let (gateway, _dir, agent) = start(&[], "").await;
    until(&gateway, "test", "ready").await;
    let list = agent.get("/v1/tools").await.body;
    let echo =
        list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "test__echo").unwrap();
    assert_eq!(
        (&echo["title"], &echo["description"]),
        (&json!("Echo"), &json!("Says it back.")),
        "{echo}"
    );
    let result = agent.call("test__echo", json!({ "text": "hello" })).await.result();
    assert_eq!(result, json!({ "text": "hello" }));
    agent.call("test__echo", json!({ "text": 5 })).await.assert_problem(422, "invalid_args");
    let failed = agent.call("test__fail", json!({})).await;
    assert_eq!(failed.assert_problem(502, "failed").detail(), "no such thing");
    let health = upstream(&gateway, "test").await;
    assert_eq!((&health["tools"], &health["source"]), (&json!(11), &json!("config")), "{health}");
}

#[tokio::test]
async fn a_server_that_is_known_is_started_by_the_first_call() {
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("test", &[], dir.path(), "");
    let first = Setup::new().config(&config).serve().await;
    until(&first, "test", "ready").await;
    let again = Setup::new().config(&config).on(&first);
    first.stop().await;
    std::fs::remove_file(dir.path().join("pid")).unwrap();
    let gateway = again.serve().await;
    assert!(gateway.operator().tool_names().await.contains(&"test__echo".to_owned()));
    until(&gateway, "test", "idle").await;
    assert!(!dir.path().join("pid").exists(), "it was started for a list");
    let result = gateway.operator().call("test__echo", json!({ "text": "a" })).await.result();
    assert_eq!(result["text"], "a");
    noted(dir.path(), "pid").await;
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_list() {
    let (gateway, dir, agent) = start(&["hang"], "").await;
    noted(dir.path(), "pid").await;
    assert_eq!(agent.tool_names().await, Vec::<String>::new());
    assert_eq!(upstream(&gateway, "test").await["state"], "starting");
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_at_once_and_is_started_again() {
    let (gateway, dir, agent) = start(&[], "").await;
    until(&gateway, "test", "ready").await;
    let waiting = agent.call_later("test__wait", json!({ "args": {} }));
    noted(dir.path(), "waiting").await;
    let pid = noted(dir.path(), "pid").await;
    std::fs::remove_file(dir.path().join("pid")).unwrap();
    kill(&pid);
    let reply = soon(waiting).await.unwrap();
    assert_eq!(reply.assert_problem(503, "offline").body["retryable"], false, "{}", reply.body);
    assert_ne!(noted(dir.path(), "pid").await, pid);
    let after = until(&gateway, "test", "ready").await;
    assert!(
        after["last_error"].as_str().unwrap().contains("speaks"),
        "its last words are kept: {after}"
    );
    assert!(!after["last_error"].as_str().unwrap().contains('\u{1b}'));
    assert_eq!(agent.call("test__echo", json!({ "text": "b" })).await.result()["text"], "b");
}

#[tokio::test]
async fn tools_of_a_server_that_does_not_come_back_are_marked_and_say_since_when() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("server.sh");
    std::fs::write(&script, format!("#!/bin/sh\nexec {}\n", server_program())).unwrap();
    let config = format!(
        "[limits]\nreconnect_wait_ms = 0\n[upstream.test]\ncommand = [\"sh\", \"{}\"]\nenv = {{ SERVER_DIR = \"{}\" }}\n",
        script.display(),
        dir.path().display()
    );
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    std::fs::write(&script, "#!/bin/sh\necho it is broken >&2\nexit 1\n").unwrap();
    kill(&noted(dir.path(), "pid").await);
    let broken = eventually("its last words", || async {
        let server = upstream(&gateway, "test").await;
        server["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("it is broken"))
            .then_some(server)
    })
    .await;
    assert_ne!(broken["state"], "ready");
    let agent = gateway.operator();
    let list = agent.get("/v1/tools").await.body;
    let echo =
        list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "test__echo").unwrap();
    assert_eq!(echo["online"], false, "{echo}");
    let reply = agent.call("test__echo", json!({ "text": "c" })).await;
    assert!(reply.assert_problem(503, "offline").detail().contains("test"), "{}", reply.body);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server() {
    let (gateway, dir, agent) = start(&[], "").await;
    until(&gateway, "test", "ready").await;
    let waiting = agent.call_later("test__wait", json!({ "args": {} }));
    noted(dir.path(), "waiting").await;
    waiting.abort();
    noted(dir.path(), "cancelled").await;
}

#[tokio::test]
async fn the_deadline_of_a_call_is_the_server_s_too() {
    let (gateway, dir, agent) = start(&[], "timeout_ms = 200").await;
    until(&gateway, "test", "ready").await;
    agent.call("test__wait", json!({})).await.assert_problem(504, "timeout");
    noted(dir.path(), "cancelled").await;
}

#[tokio::test]
async fn progress_comes_through_in_order_and_whole() {
    let (gateway, _dir, agent) = start(&[], "").await;
    until(&gateway, "test", "ready").await;
    let mut events = agent.stream("test__progress", json!({ "args": {} })).await;
    let mut seen = Vec::new();
    while let Some((name, data)) = events.next().await {
        if name == "progress" {
            seen.push((data["progress"].as_f64().unwrap(), data["message"].clone()));
        }
    }
    let step = |n: u32| (f64::from(n), json!(format!("step {n}")));
    assert_eq!(seen, [step(1), step(2), step(3)]);
}

#[tokio::test]
async fn a_changed_list_is_followed() {
    for era in ["old", "new"] {
        let dir = tempfile::tempdir().unwrap();
        let env = format!("env = {{ SERVER_ERA = \"{era}\" }}");
        let config = format!("[upstream.test]\ncommand = {}\n{env}\n", json!([server_program()]));
        let gateway = Setup::new().config(&config).serve().await;
        until(&gateway, "test", "ready").await;
        let agent = gateway.operator();
        for expected in [true, false] {
            agent.call("test__change", json!({})).await.result();
            eventually("the changed list", || async {
                (agent.tool_names().await.contains(&"test__late".to_owned()) == expected)
                    .then_some(())
            })
            .await;
        }
        drop(dir);
    }
}

#[tokio::test]
async fn a_list_that_changes_while_it_is_asked_for_is_asked_for_again() {
    let env = "env = { SERVER_ERA = \"old\", SERVER_LATE_CHANGE = \"1\" }";
    let config = format!("[upstream.test]\ncommand = {}\n{env}\n", json!([server_program()]));
    let gateway = Setup::new().config(&config).serve().await;
    let agent = gateway.operator();
    eventually("the changed list", || async {
        agent.tool_names().await.contains(&"test__late".to_owned()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_list_without_end_is_not_taken() {
    let config = format!(
        "[upstream.test]\ncommand = {}\nenv = {{ SERVER_ENDLESS = \"1\" }}\n",
        json!([server_program()])
    );
    let gateway = Setup::new().config(&config).serve().await;
    let server = eventually("its error", || async {
        Some(upstream(&gateway, "test").await).filter(|server| server["last_error"].is_string())
    })
    .await;
    assert!(server["last_error"].as_str().unwrap().contains("bytes, the limit"), "{server}");
}

#[tokio::test]
async fn a_program_that_cannot_run_says_why() {
    let config = "[upstream.none]\ncommand = [\"/no/such/program\"]\n";
    let gateway = Setup::new().config(config).serve().await;
    let server = eventually("its error", || async {
        Some(upstream(&gateway, "none").await).filter(|server| server["last_error"].is_string())
    })
    .await;
    assert!(server["last_error"].as_str().unwrap().contains("/no/such/program"), "{server}");
}
