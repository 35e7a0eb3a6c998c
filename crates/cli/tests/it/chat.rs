//! `switchboard chat` prints answers on stdout and tool activity on stderr. Ctrl-C stops the
//! answer, and without a configured model there is help.

use rustix::process::Signal;
use sa_gateway_kit::{Gateway, Hello, ModelReply, ScriptedModel, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

async fn spawn(model: &ScriptedModel) -> Gateway {
    Setup::new().config(&model.config("")).spawn(SWITCHBOARD).await
}

#[tokio::test]
async fn one_question_and_its_answer() {
    let model = ScriptedModel::start().await;
    let gateway = spawn(&model).await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    model
        .then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({ "k": 1 }))]))
        .then(|_| {}, ModelReply::text("It is 1."));
    let ended = gateway.cli(&["chat", "-m", "what is k?"]).run().await;
    ended.assert_code(0);
    assert_eq!(ended.stdout, "It is 1.\n");
    assert!(
        ended.stderr.contains("→ a_x {\"k\":1}") && ended.stderr.contains("✓ a_x"),
        "{}",
        ended.stderr
    );

    model.then(|request| assert!(request.get("tools").is_none()), ModelReply::text("plain"));
    let ended = gateway
        .cli(&["chat", "--once", "hello", "--tools", "none", "--model", "scripted", "--json"])
        .run()
        .await;
    assert_eq!(ended.assert_code(0).json()["choices"][0]["message"]["content"], "plain");
    model.finish();
}

#[tokio::test]
async fn a_conversation_on_stdin() {
    let model = ScriptedModel::start().await;
    let gateway = spawn(&model).await;
    model.then(
        |request| {
            assert_eq!(request["messages"][0], json!({ "role": "system", "content": "be brief" }));
        },
        ModelReply::text("one"),
    );
    model.then(
        |request| {
            let said: Vec<_> = request["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|message| message["content"].as_str().unwrap())
                .collect();
            assert_eq!(said, ["be brief", "first", "one", "second"]);
        },
        ModelReply::text("two"),
    );
    let ended = gateway.cli(&["chat", "--system", "be brief"]).run_with("first\n\nsecond\n").await;
    ended.assert_code(0);
    assert_eq!(ended.stdout, "one\ntwo\n");
    model.finish();
}

#[tokio::test]
async fn ctrl_c_cancels_the_answer_and_the_calls() {
    let model = ScriptedModel::start().await;
    let gateway = spawn(&model).await;
    let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
    model.then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({}))]));
    let chat = gateway.cli(&["chat", "-m", "go"]).start();
    let request = node.request().await;
    chat.warns("→ a_x").await;
    chat.signal(Signal::INT);
    assert_eq!(node.cancelled(&request).await, "disconnected");
    chat.end().await.assert_code(130);
    model.finish();
}

#[tokio::test]
async fn failures_have_their_exit_codes_and_help() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let ended = gateway.cli(&["chat", "-m", "hello"]).run().await;
    ended.assert_code(5);
    assert!(
        ended.stderr.contains("[models.gpt]") && ended.stderr.contains("base_url"),
        "{}",
        ended.stderr
    );

    let model = ScriptedModel::start().await;
    let gateway = spawn(&model).await;
    let ended = gateway.cli(&["chat", "--model", "other", "-m", "hello"]).run().await;
    ended.assert_code(5);
    assert!(ended.stderr.contains("scripted"), "{}", ended.stderr);
    model.then(|_| {}, ModelReply::error(500, "it burns"));
    let ended = gateway.cli(&["chat", "-m", "hello"]).run().await;
    ended.assert_code(1);
    assert!(ended.stderr.contains("it burns"), "{}", ended.stderr);
    model.finish();
}

#[tokio::test]
async fn a_models_server_that_is_not_there_is_named() {
    let config = "[models.local]\nbase_url = \"http://127.0.0.1:1/canary/v1\"\n";
    let gateway = Setup::new().config(config).spawn(SWITCHBOARD).await;
    let ended = gateway.cli(&["chat", "-m", "hello"]).run().await;
    ended.assert_code(8);
    for words in [
        "http://127.0.0.1:1 cannot be reached",
        "hint: start it, or fix base_url in [models.local]",
    ] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    gateway.stop().await;
}
