//! A session's events can be read and followed from the command line, and a message that nobody works on says why.

use sa_testkit::{Gateway, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

const ONE: &str =
    "[sessions.agents.clerk]\ncommand = [\"sh\", \"-c\", \"read word; echo got $word; exit 3\"]\ninput = \"text\"\n";
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
    let places: Vec<_> =
        words.iter().map(|word| shown.find(word).unwrap_or_else(|| panic!("{word}: {shown}"))).collect();
    assert!(places.is_sorted(), "{shown}");
    for columns in [80, 40] {
        let narrow = gateway.cli(&["sessions", "events", &id]).run_on_terminal(columns).await.stdout;
        assert!(narrow.lines().all(|line| line.chars().count() <= columns.into()), "{narrow}");
    }
    let json = gateway.cli(&["sessions", "events", &id, "--json"]).run().await.json();
    let events = json["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["type"] == "output"), "{json}");
    let after = events[events.len() - 2]["id"].as_u64().unwrap().to_string();
    let rest = gateway.cli(&["sessions", "events", &id, "--since", &after, "--json"]).run().await.json();
    assert_eq!(rest["events"].as_array().unwrap()[..], events[events.len() - 1..], "{rest}");
    // Whoever follows hears the end, and ends with it.
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
    let shown = gateway.cli(&["call", "session_message", "message=hello", "wait_ms=20000"]).run_on_terminal(80).await;
    let shown = shown.assert_code(0).stdout.clone();
    assert!(shown.contains("got hello") && shown.contains("agent     clerk"), "{shown}");
    assert!(!shown.contains('{') && shown.contains("switchboard sessions events ses_"), "{shown}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_no_agent_is_started_for_names_the_choices() {
    for (config, words) in [(format!("{ONE}{TWO}"), "clerk, cook"), (String::new(), "[sessions.agents.NAME]")] {
        let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
        let operator = gateway.operator();
        let answer = operator.post("/v1/sessions", &json!({ "message": "hello" })).await;
        assert_eq!((answer.status, &answer.body["state"]), (201, &json!("idle")), "{}", answer.text);
        assert!(answer.body["hint"].as_str().unwrap().contains(words), "{}", answer.text);
        let shown = gateway.cli(&["call", "session_message", "message=hello"]).run_on_terminal(80).await.stdout;
        assert!(shown.contains("note: no agent"), "{shown}");
        if !config.is_empty() {
            let named = operator.call("session_message", json!({ "message": "hello", "agent": "cook" })).await.result();
            assert!(named["hint"].is_null(), "{named}");
        }
        gateway.stop().await;
    }
}
