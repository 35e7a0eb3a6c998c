//! Two nodes with the same tool. A node with a token immediately replaces one without. With the
//! same token, the second node takes over while the first is away. With another token, it waits
//! until the first is forgotten or its token is revoked. Meanwhile the call's error and `doctor`
//! name the holder.

use rustix::process::Signal;
use sa_gateway_kit::{Cli, Gateway, Setup, Started, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

/// Starts the README's node, and waits until it is online.
async fn start(gateway: &Gateway, id: &str, token: &str) -> Started {
    let node = Cli::new(env!("CARGO_BIN_EXE_e2e-readme-node"));
    let node = node
        .env("SA_GATEWAY_WS_URL", gateway.nodes_url())
        .env("SA_NODE_ID", id)
        .env("SA_NODE_TOKEN", token);
    let node = node.start();
    until(gateway, id, true).await;
    node
}

/// Stops a node like a user, with Ctrl-C.
async fn stop(gateway: &Gateway, id: &str, node: Started) {
    node.signal(Signal::INT);
    node.end().await.assert_code(0);
    until(gateway, id, false).await;
}

async fn until(gateway: &Gateway, id: &str, online: bool) {
    eventually("the node coming or going", || async {
        let nodes = gateway.operator().get("/v1/nodes").await.body;
        nodes["nodes"]
            .as_array()?
            .iter()
            .any(|node| node["id"] == id && node["online"] == online)
            .then_some(())
    })
    .await;
}

async fn greets(gateway: &Gateway, name: &str) {
    let ended = gateway.cli(&["call", name, "name=Ann"]).run().await;
    assert!(ended.assert_code(0).stdout.contains("Hello, Ann!"), "{}", ended.stdout);
}

async fn token(gateway: &Gateway, id: &str) -> String {
    gateway.token(json!({ "name": id, "role": "node", "node_id": id })).await.1
}

#[tokio::test]
async fn a_node_that_comes_back_with_a_token_under_another_id_has_the_plain_name() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let first = start(&gateway, "py-01", "").await;
    greets(&gateway, "office_greet").await;
    stop(&gateway, "py-01", first).await;
    let token = token(&gateway, "py-02").await;
    let second = start(&gateway, "py-02", &token).await;
    assert_eq!(gateway.operator().tool_names().await, ["office_greet"]);
    for name in ["office_greet", "office.greet"] {
        greets(&gateway, name).await;
    }
    // A node that was stopped on purpose is not a problem.
    let doctor = gateway.cli(&["doctor"]).run().await;
    assert!(doctor.assert_code(0).stdout.contains("\"py-01\" was stopped"), "{}", doctor.stdout);
    stop(&gateway, "py-02", second).await;
    gateway.stop().await;
}

#[tokio::test]
async fn another_token_waits_and_both_the_call_and_the_doctor_say_for_whom() {
    let gateway = Setup::new().config("[limits]\nreconnect_wait_ms = 1").spawn(SWITCHBOARD).await;
    let (one, two) = (token(&gateway, "py-01").await, token(&gateway, "py-02").await);
    let first = start(&gateway, "py-01", &one).await;
    stop(&gateway, "py-01", first).await;
    let second = start(&gateway, "py-02", &two).await;
    let refused = gateway.cli(&["call", "office_greet", "name=Ann"]).run().await;
    for words in
        ["its node \"py-01\" was stopped", "\"py-02\" also offers it, but with another token"]
    {
        assert!(refused.assert_code(8).stderr.contains(words), "{}", refused.stderr);
    }
    let doctor = gateway.cli(&["doctor", "--json"]).run().await.json();
    let mut findings = doctor["findings"].as_array().unwrap().iter();
    let held = findings.find(|found| {
        found["what"].as_str().unwrap().contains("office.greet, which \"py-01\" holds")
    });
    assert!(held.unwrap()["fix"].as_str().unwrap().contains("\"py-01\" is offline"), "{doctor:#}");
    // The operator need not wait until the node is forgotten.
    gateway.cli(&["token", "revoke", "py-01"]).run().await.assert_code(0);
    greets(&gateway, "office_greet").await;
    stop(&gateway, "py-02", second).await;
    gateway.stop().await;
}

#[tokio::test]
async fn of_two_with_one_token_the_second_has_a_longer_name_and_stands_in() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "shared").spawn(SWITCHBOARD).await;
    let first = start(&gateway, "py-01", "shared").await;
    let second = start(&gateway, "py-02", "shared").await;
    let names = gateway.operator().tool_names().await;
    assert_eq!((names.len(), &*names[0]), (2, "office_greet"));
    let doctor =
        gateway.cli(&["doctor"]).run().await.assert_code(0).stdout.replace(char::is_whitespace, "");
    let why = format!("the longer name {}: office_greet belongs to the node \"py-01\"", names[1]);
    assert!(doctor.contains(&why.replace(' ', "")), "{doctor}");
    stop(&gateway, "py-01", first).await;
    for name in &names {
        greets(&gateway, name).await;
    }
    let doctor =
        gateway.cli(&["doctor"]).run().await.assert_code(0).stdout.replace(char::is_whitespace, "");
    assert!(doctor.contains("\"py-01\",whichisoffline"), "{doctor}");
    stop(&gateway, "py-02", second).await;
    gateway.stop().await;
}

#[tokio::test]
async fn when_the_holder_is_forgotten_the_next_one_has_the_name_and_answers_to_both() {
    let config = "[nodes]\noffline_memory_ms = 50";
    let gateway = Setup::new().env("SA_NODE_TOKEN", "shared").config(config).start().await;
    let first = start(&gateway, "py-01", "shared").await;
    let second = start(&gateway, "py-02", "shared").await;
    let longer = gateway.operator().tool_names().await.remove(1);
    first.signal(Signal::INT);
    first.end().await.assert_code(0);
    eventually("the first one forgotten", || async {
        gateway.inner().router.directory().sweep();
        (gateway.operator().tool_names().await == ["office_greet"]).then_some(())
    })
    .await;
    let operator = gateway.operator();
    for name in ["office_greet", &longer] {
        assert_eq!(
            operator.call(name, json!({ "name": "Ann" })).await.result()["greeting"],
            "Hello, Ann!"
        );
    }
    drop(second);
}
