//! The key of a model's server and the token of a caller appear nowhere else.

use sa_gateway_kit::chat::{ask, complete};
use sa_gateway_kit::{Hello, ModelReply, ScriptedModel, Setup, assert_nowhere, find_in_files};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn neither_key_nor_token_gets_to_where_it_does_not_belong() {
    let model = ScriptedModel::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, format!("{}\n", ScriptedModel::KEY)).unwrap();
    let config = format!(
        "[log]\nfilter = \"debug\"\n[models.scripted]\nbase_url = \"{}\"\nmodel = \"real-name\"\napi_key = \"file:{}\"\n",
        model.url,
        file.display()
    );
    let mut gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    model
        .then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({}))]))
        .then(|_| {}, ModelReply::text("done"));
    model.then(|_| {}, ModelReply::error(500, ScriptedModel::KEY));
    let answers =
        [complete(&gateway, &ask("go")).await.text, complete(&gateway, &ask("go")).await.text];
    let mut lists = String::new();
    for path in ["/v1/models", "/v1/calls", "/v1/audit", "/v1/status", "/metrics"] {
        lists.push_str(&gateway.operator().get(path).await.text);
    }
    let shown = gateway.cli(&["config", "show"]).run().await.stdout;
    let sent = json!(model.requests()).to_string();
    let (dir, token) = (gateway.dir.clone(), gateway.operator.clone());
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    let log = gateway.stderr();
    let texts = [
        ("the answers", answers.join("\n")),
        ("the lists", lists),
        ("the log", log),
        ("the configuration", shown),
    ];
    for (place, text) in &texts {
        assert_nowhere(ScriptedModel::KEY, &[(place, text)]);
    }
    assert_nowhere(&token, &[("what the model's server saw", &sent)]);
    assert_eq!(find_in_files(dir.path(), ScriptedModel::KEY), Vec::<std::path::PathBuf>::new());
    model.finish();
}
