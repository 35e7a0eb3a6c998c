//! The command line can send messages to agents, and read and follow a session's events. If no
//! agent processes a message, the command reports the reason.

use rustix::process::Signal;
use sa_gateway_kit::{Gateway, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

const ONE: &str = "[sessions.agents.clerk]\ncommand = [\"sh\", \"-c\", \"read word; echo got $word; exit 3\"]\ninput = \"text\"\n";
const TWO: &str = "[sessions.agents.cook]\ncommand = [\"cat\"]\n";

async fn start(gateway: &Gateway) -> String {
    let message = json!({ "message": "hello", "wait_ms": 20_000 });
    let session = gateway.operator().call("session_message", message).await.result();
    session["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_happened_in_a_session_is_told_in_order() {
    let gateway = Setup::new().config(ONE).spawn(SWITCHBOARD).await;
    let id = start(&gateway).await;
    let shown = gateway.cli(&["sessions", "events", &id]).run().await.assert_code(0).stdout.clone();
    let words = ["session started", "operator: hello", "agent started", "got hello", "exit code 3"];
    let places: Vec<_> = words
        .iter()
        .map(|word| shown.find(word).unwrap_or_else(|| panic!("{word}: {shown}")))
        .collect();
    assert!(places.is_sorted(), "{shown}");
    for columns in [80, 40] {
        let narrow =
            gateway.cli(&["sessions", "events", &id]).run_on_terminal(columns).await.stdout;
        assert!(narrow.lines().all(|line| line.chars().count() <= columns.into()), "{narrow}");
    }
    let json = gateway.cli(&["sessions", "events", &id, "--json"]).run().await.json();
    let events = json["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["type"] == "output"), "{json}");
    let after = events[events.len() - 2]["id"].as_u64().unwrap().to_string();
    let rest =
        gateway.cli(&["sessions", "events", &id, "--since", &after, "--json"]).run().await.json();
    assert_eq!(rest["events"].as_array().unwrap()[..], events[events.len() - 1..], "{rest}");
    // A follower receives the end of the session and ends with it.
    let following = gateway.cli(&["sessions", "events", &id, "--follow"]).start();
    following.says("got hello").await;
    gateway.cli(&["sessions", "end", &id]).run().await.assert_code(0);
    let followed = following.end().await;
    assert!(followed.assert_code(0).stdout.contains("session ended"), "{}", followed.stdout);
    gateway.cli(&["sessions", "events", "ses_nobody"]).run().await.assert_code(5);
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_on_a_terminal_is_told_in_words() {
    let gateway = Setup::new().config(ONE).spawn(SWITCHBOARD).await;
    let shown = gateway
        .cli(&["call", "session_message", "message=hello", "wait_ms=20000"])
        .run_on_terminal(80)
        .await;
    let shown = shown.assert_code(0).stdout.clone();
    assert!(shown.contains("got hello") && shown.contains("agent    clerk"), "{shown}");
    assert!(!shown.contains('{') && shown.contains("switchboard sessions events ses_"), "{shown}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_no_agent_is_started_for_names_the_choices() {
    for (config, words) in
        [(format!("{ONE}{TWO}"), "clerk, cook"), (String::new(), "[sessions.agents.NAME]")]
    {
        let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
        let operator = gateway.operator();
        let answer = operator.post("/v1/sessions", &json!({ "message": "hello" })).await;
        assert_eq!(
            (answer.status, &answer.body["state"]),
            (201, &json!("idle")),
            "{}",
            answer.text
        );
        assert!(answer.body["hint"].as_str().unwrap().contains(words), "{}", answer.text);
        let shown = gateway
            .cli(&["call", "session_message", "message=hello"])
            .run_on_terminal(80)
            .await
            .stdout;
        assert!(shown.contains("note: no agent"), "{shown}");
        if !config.is_empty() {
            let named = operator
                .call("session_message", json!({ "message": "hello", "agent": "cook" }))
                .await
                .result();
            assert!(named["hint"].is_null(), "{named}");
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_message_is_sent_and_watched_until_the_agent_has_ended() {
    const GOOD: &str = "[sessions.agents.good]\ncommand = [\"sh\", \"-c\", \"read word; echo got $word\"]\ninput = \"text\"\n";
    let gateway = Setup::new().config(&format!("{ONE}{GOOD}")).spawn(SWITCHBOARD).await;
    let first = gateway.cli(&["sessions", "send", "hello", "--agent", "good"]).run().await;
    let shown = &first.assert_code(0).stdout;
    let places: Vec<_> = ["operator: hello", "got hello", "exit code 0"]
        .iter()
        .map(|word| shown.find(word))
        .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{shown}");
    let list = gateway.operator().get("/v1/sessions").await.body;
    let id = list["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    assert!(first.stderr.contains(&format!("sessions send --session {id}")), "{}", first.stderr);
    // Continuing the session shows only the events after the second message.
    let second = gateway.cli(&["sessions", "send", "again", "--session", &id]).run().await;
    let shown = &second.assert_code(0).stdout;
    assert!(shown.contains("got again") && !shown.contains("hello"), "{shown}");
    let json = gateway.cli(&["sessions", "send", "third", "--session", &id, "--json"]).run().await;
    let lines: Vec<serde_json::Value> = json
        .assert_code(0)
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["session_id"], id.as_str());
    assert_eq!(lines.last().unwrap()["type"], "agent_exited", "{}", json.stdout);
    // The command fails when the agent fails.
    let failed = gateway.cli(&["sessions", "send", "hello", "--agent", "clerk"]).run().await;
    assert!(failed.assert_code(1).stderr.contains("exited with code 3"), "{}", failed.stderr);
    gateway.cli(&["sessions", "send", "hello", "--agent", "nobody"]).run().await.assert_code(6);
    gateway
        .cli(&["sessions", "send", "hello", "--session", "ses_nobody"])
        .run()
        .await
        .assert_code(5);
    // Without an agent the command prints a note and does not wait.
    let idle = gateway.cli(&["sessions", "send", "hello"]).run().await;
    assert!(idle.assert_code(0).stderr.contains("note: no agent was started"), "{}", idle.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn ctrl_c_ends_what_the_message_began_and_nothing_else() {
    let gateway = Setup::new().config(TWO).spawn(SWITCHBOARD).await;
    let state = async |id: &str| {
        gateway.operator().get(&format!("/v1/sessions/{id}")).await.body["state"].clone()
    };
    let started = gateway.cli(&["sessions", "send", "one", "--json"]).start();
    let said = started.says("agent_started").await;
    let first: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let id = first["session_id"].as_str().unwrap().to_owned();
    started.signal(Signal::INT);
    started.end().await.assert_code(130);
    eventually("the end of the session", || async { (state(&id).await == "ended").then_some(()) })
        .await;

    let sent = gateway
        .cli(&["sessions", "send", "two", "--no-wait", "--json"])
        .run()
        .await
        .assert_code(0)
        .json();
    let id = sent["session_id"].as_str().unwrap().to_owned();
    let going_on = gateway.cli(&["sessions", "send", "three", "--session", &id]).start();
    going_on.says("operator: three").await;
    going_on.signal(Signal::INT);
    let ended = going_on.end().await;
    assert!(ended.assert_code(130).stderr.contains("continue"), "{}", ended.stderr);
    assert_eq!(state(&id).await, "running");
    // The end of the session also ends the watching command.
    let watching = gateway.cli(&["sessions", "send", "four", "--session", &id]).start();
    watching.says("operator: four").await;
    gateway.cli(&["sessions", "end", &id]).run().await.assert_code(0);
    let ended = watching.end().await;
    assert!(ended.assert_code(1).stderr.contains("ended by operator"), "{}", ended.stderr);
    gateway.stop().await;
}
