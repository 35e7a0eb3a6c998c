//! Settings belong to one user. They are checked, encrypted at rest, never shown, and sent only to
//! the servers for which they were stored.

use reqwest::Method;
use sa_gateway_kit::plugins::{add, gateway, payload};
use sa_gateway_kit::{
    Agent, PluginAnswer, PluginServer, Reply, Setup, assert_nowhere, eventually, find_in_files,
    is_private,
};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

const CANARY: &str = "canary-5f0c71d2e9";

fn schema() -> Value {
    json!({ "type": "object", "required": ["apiKey"], "properties": {
        "apiKey": { "type": "string", "minLength": 8, "format": "password" },
        "endpoint": { "type": "string", "default": "https://api.example.com" }
    } })
}

async fn store(agent: &Agent, path: &str, settings: Value) -> Reply {
    Reply::of(agent.request(Method::PUT, path).json(&json!({ "settings": settings }))).await
}

/// Returns the key that the plugin's server received last.
fn key_seen(server: &PluginServer) -> Value {
    let header = server.last().headers.get("sperax-plugin-settings").cloned();
    header.map_or(Value::Null, |header| {
        serde_json::from_slice::<Value>(header.as_bytes()).unwrap()["apiKey"].clone()
    })
}

#[tokio::test]
async fn the_command_says_what_can_be_set() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).spawn(SWITCHBOARD).await;
    add(&at.operator(), &server.manifest("w", json!({ "settings": schema() }))).await;
    add(&at.operator(), &server.manifest("plain", json!({}))).await;
    let said = async |args: &[&str]| at.cli(args).run().await.stdout;
    let empty = said(&["plugin", "settings", "w"]).await;
    for words in [
        "no settings are stored",
        "apiKey",
        "(required)",
        "endpoint",
        "plugin settings w --from FILE",
    ] {
        assert!(empty.contains(words), "{words}: {empty}");
    }
    assert!(said(&["plugin", "settings", "plain"]).await.contains("has no settings"));
    let shown = said(&["plugin", "show", "w"]).await;
    assert!(
        shown.contains("apiKey, endpoint") && shown.contains("switchboard plugin settings w"),
        "{shown}"
    );
    assert!(!said(&["plugin", "show", "plain"]).await.contains("settings"));
}

#[tokio::test]
async fn a_secret_setting_is_nowhere() {
    // The server repeats all received data.
    let server = PluginServer::start(|request| {
        let seen = format!("{:?}", request.headers.get("sperax-plugin-settings"));
        let key = if seen.contains(CANARY) { CANARY } else { "none" };
        match request.path.as_str() {
            "/refuse" => PluginAnswer::text(400, "text/plain", &format!("bad key {key}")),
            _ => PluginAnswer::json(&json!({ "your key": key })),
        }
    })
    .await;
    let mut manifest = server.manifest("w", json!({ "settings": schema() }));
    manifest["api"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "refuse", "description": "d", "url": server.url("/refuse") }));
    let config = format!("[log]\nfilter = \"debug\"\n{}", server.allowed());
    let at = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let operator = at.operator();
    add(&operator, &manifest).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json!({ "apiKey": CANARY }).to_string()).unwrap();
    let mut said = String::new();
    for args in [
        vec!["plugin", "settings", "w", "--from", file.path().to_str().unwrap()],
        vec!["plugin", "settings", "w"],
    ] {
        let ended = at.cli(&args).run().await;
        ended.assert_code(0);
        said += &(ended.stdout + &ended.stderr);
    }
    assert!(said.contains("***"), "{said}");
    let from_stdin = at
        .cli(&["plugin", "settings", "w", "--from", "-"])
        .run_with(&json!({ "apiKey": CANARY }).to_string())
        .await;
    from_stdin.assert_code(0);
    for api in ["run", "refuse"] {
        said += &gateway(
            &operator,
            &json!({ "identifier": "w", "apiName": api, "arguments": "{\"city\":\"x\"}" }),
        )
        .await
        .text;
        said += &operator.call(&format!("w__{api}"), json!({ "city": "x" })).await.text;
        // A host receives the settings that it sent itself, but they must not be recorded.
        let request = operator
            .request(Method::POST, "/api/gateway")
            .header("sperax-plugin-settings", json!({ "apiKey": CANARY }).to_string());
        Reply::of(
            request.json(
                &json!({ "identifier": "w", "apiName": api, "arguments": "{\"city\":\"x\"}" }),
            ),
        )
        .await;
    }
    assert_eq!(server.asked().len(), 6);
    assert!(
        server.asked().iter().all(|request| format!("{:?}", request.headers).contains(CANARY)),
        "the server itself gets it"
    );
    let history = eventually("the history", || async {
        Some(operator.get("/v1/calls").await)
            .filter(|reply| reply.body["calls"].as_array().unwrap().len() == 6)
    })
    .await;
    let mut lists = history.text.clone();
    for call in history.body["calls"].as_array().unwrap() {
        lists += &operator
            .get_text(&format!(
                "/v1/calls/{}",
                call["id"].as_str().or(call["call_id"].as_str()).unwrap()
            ))
            .await;
    }
    for path in [
        "/v1/plugins",
        "/v1/plugins/w",
        "/v1/plugins/w/settings",
        "/v1/audit",
        "/v1/tools",
        "/v1/status",
        "/metrics",
    ] {
        lists += &operator.get_text(path).await;
    }
    let (dir, mut at) = (at.dir.clone(), at);
    at.begin_stop();
    assert_eq!(at.exit_code().await, Some(0));
    let log = at.stderr();
    assert_nowhere(CANARY, &[("the answers", &said), ("the lists", &lists), ("the log", &log)]);
    assert_eq!(find_in_files(dir.path(), CANARY), Vec::<std::path::PathBuf>::new());
    assert!(is_private(&dir.path().join("data/settings.key")));
}

#[tokio::test]
async fn a_key_from_the_environment_opens_what_it_has_sealed_and_no_other_does() {
    let server = PluginServer::echo().await;
    let setup = || Setup::new().config(&server.allowed());
    let at = setup().env("SWITCHBOARD_KEY", "a long enough key of ours").spawn(SWITCHBOARD).await;
    add(&at.operator(), &server.manifest("w", json!({ "settings": schema() }))).await;
    store(&at.operator(), "/v1/plugins/w/settings", json!({ "apiKey": CANARY })).await;
    assert!(!at.data_dir().join("settings.key").exists());
    let again = setup().on(&at).env("SWITCHBOARD_KEY", "a long enough key of ours");
    at.stop().await;
    let at = again.spawn(SWITCHBOARD).await;
    assert_eq!(gateway(&at.operator(), &payload("w", json!({ "city": "x" }))).await.status, 200);
    assert_eq!(key_seen(&server), CANARY);
    let other = setup().on(&at).env("SWITCHBOARD_KEY", "quite another key than that");
    at.stop().await;
    let at = other.spawn(SWITCHBOARD).await;
    let reply = gateway(&at.operator(), &payload("w", json!({ "city": "x" }))).await;
    assert_eq!(reply.body["errorType"], "PluginSettingsInvalid", "{}", reply.text);
    assert_eq!(
        store(&at.operator(), "/v1/plugins/w/settings", json!({ "apiKey": "typed again" }))
            .await
            .status,
        200
    );
}
