//! `switchboard doctor` reports upstream servers, and the names that they take from nodes.

use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Cli, Hello, PluginAnswer, PluginServer, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::upstream::server::{SERVER, stdio};

/// Runs the doctor and returns the fix of the only finding that contains these words.
async fn diagnose(cli: Cli, words: &str) -> String {
    let ended = cli.args(&["doctor", "--json"]).run().await;
    ended.assert_code(1);
    let report = ended.json();
    let findings = report["findings"].as_array().unwrap().iter();
    let wrong: Vec<&Value> = findings.filter(|finding| finding["ok"] == false).collect();
    let found = wrong.iter().find(|finding| finding["what"].as_str().unwrap().contains(words));
    let found = found.unwrap_or_else(|| panic!("nothing about {words:?} in {report:#}"));
    let fix = found["fix"].as_str().unwrap().to_owned();
    assert!(!fix.is_empty() && !fix.contains('\n'), "{fix}");
    fix
}

#[tokio::test]
async fn upstream_servers() {
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("good", &[], dir.path(), "");
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    until(&gateway, "good", "ready").await;
    let ended = gateway.cli(&["doctor"]).run().await;
    ended.assert_code(0);
    assert!(ended.stdout.contains("\"good\" is ready"), "{}", ended.stdout);
    let bad = json!({ "name": "bad", "url": "http://127.0.0.1:9/mcp" });
    assert_eq!(gateway.operator().post("/v1/upstream", &bad).await.status, 201);
    until(&gateway, "bad", "offline").await;
    diagnose(gateway.cli(&[]), "\"bad\" is offline: cannot reach http://127.0.0.1:9/mcp").await;
    let server =
        PluginServer::start(|_| PluginAnswer::text(401, "text/plain", "who are you")).await;
    let locked = json!({ "name": "locked", "url": server.url("/mcp") });
    assert_eq!(gateway.operator().post("/v1/upstream", &locked).await.status, 201);
    until(&gateway, "locked", "offline").await;
    let fix = diagnose(gateway.cli(&[]), "\"locked\" is offline").await;
    assert!(fix.contains("--bearer") && !fix.contains("keeps retrying"), "{fix}");
    gateway.stop().await;
}

#[tokio::test]
async fn contested_names_are_reported_with_their_holders() {
    let server = PluginServer::echo().await;
    let gateway = Setup::new().config(&server.allowed()).spawn(SWITCHBOARD).await;
    // The node connects first, but the operator's installations take precedence.
    let plain = ["test._echo", "weather._run", "files.read"];
    let node = plain.iter().fold(Hello::new("first"), |node, name| node.tool(name));
    let _node = node.connect(&gateway).await.echo();
    let dir = tempfile::tempdir().unwrap();
    let env = format!("SERVER_DIR={}", dir.path().display());
    let add = ["upstream", "add", "test", "--env", &env, "--command", SERVER, "stdio"];
    gateway.cli(&add).run().await.assert_code(0);
    until(&gateway, "test", "ready").await;
    let manifest = json!({ "manifest": server.manifest("weather", json!({})) });
    assert_eq!(gateway.operator().post("/v1/plugins", &manifest).await.status, 201);
    let _other = Hello::new("second").tool("files.read").connect(&gateway).await.echo();
    for (name, holder) in
        [("test._echo", "the upstream \"test\""), ("weather._run", "the plugin \"weather\"")]
    {
        let what = format!("the node \"first\" claims {name}, which belongs to {holder}");
        assert!(diagnose(gateway.cli(&[]), &what).await.contains("rename the tool"), "{name}");
    }
    let report = gateway.cli(&["doctor", "--json"]).run().await.json();
    let findings = report["findings"].as_array().unwrap().iter();
    let renamed: Vec<&str> = findings
        .filter_map(|found| found["what"].as_str())
        .filter(|what| what.contains("longer name"))
        .collect();
    let [renamed] = renamed[..] else { panic!("{report:#}") };
    assert!(
        renamed.starts_with("the node \"second\" lists a tool under the longer name files_read_"),
        "{renamed}"
    );
    assert!(renamed.contains(": files_read belongs to the node \"first\""), "{renamed}");
    gateway.stop().await;
}
