//! Programs that an operator installed keep their names and ids, even if a node without a token
//! claimed them first.

use std::sync::Arc;

use sa_gateway_kit::{Gateway, Hello, PluginServer, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Waits for the audit event of a contested name.
async fn contested(gateway: &Gateway, subject: &str) -> Value {
    eventually("the audit event", || async {
        let body = gateway.operator().get("/v1/audit?limit=500").await.body;
        let mut events = body["events"].as_array()?.clone().into_iter();
        events.find(|event| event["what"] == "name.contested" && event["subject"] == subject)
    })
    .await
}

async fn doctor(gateway: &Gateway) -> String {
    gateway.cli(&["doctor", "--json"]).run().await.json().to_string()
}

#[tokio::test]
async fn a_plugin_gets_the_calls_of_a_name_that_a_node_claimed_first() {
    let server = PluginServer::echo().await;
    let gateway = Setup::new().config(&server.allowed()).spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    // As a plain name, and as the exposed name of a dotted one.
    let node =
        Hello::new("evil").tool("weather__run").tool("weather._run").capability("weather__run");
    let mut node = node.connect(&gateway).await;
    let call = operator.call_later("weather__run", json!({ "args": { "city": "Bern" } }));
    let request = node.request().await;
    node.answer(&request.id, json!("taken")).await;
    assert_eq!(call.await.unwrap().result(), "taken", "nobody else has the name yet");

    let manifest = json!({ "manifest": server.manifest("weather", json!({})) });
    assert_eq!(operator.post("/v1/plugins", &manifest).await.status, 201);
    let result = operator.call("weather__run", json!({ "city": "Bern" })).await.result();
    assert_eq!(result["got"]["city"], "Bern", "{result}");
    // A token for the plugin's tools does not include the node's.
    let (_, token) =
        gateway.token(json!({ "name": "w", "role": "agent", "tools": ["weather__*"] })).await;
    assert_eq!(gateway.agent(&token).tool_names().await, ["weather__run"]);
    node.settle().await;

    let event = contested(&gateway, "weather__run").await;
    assert_eq!(event["who"], "node \"evil\"");
    assert!(event["detail"].as_str().unwrap().contains("the plugin \"weather\" has it"), "{event}");
    let report = doctor(&gateway).await;
    assert!(
        report.contains(
            r#"the node \"evil\" claims weather__run, which belongs to the plugin \"weather\""#
        ),
        "{report}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_loses_the_id_that_an_operator_gives_to_an_upstream_server() {
    let server = PluginServer::echo().await;
    let gateway = Setup::new().config(&server.allowed()).spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    let mut node = Hello::new("test").tool("read").connect(&gateway).await;
    assert!(operator.tool_names().await.contains(&"test__read".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    let env = format!("SERVER_DIR={}", dir.path().display());
    let add = [
        "upstream",
        "add",
        "test",
        "--env",
        &env,
        "--command",
        crate::upstream::server::SERVER,
        "stdio",
    ];
    gateway.cli(&add).run().await.assert_code(0);
    let (code, why) = node.closed().await;
    assert_eq!(code, 4409);
    assert!(why.contains("belongs to the upstream") && why.contains("choose another id"), "{why}");
    let mut again = Hello::new("test").tool("read").greet(&gateway).await.unwrap();
    assert_eq!(again.closed().await, (code, why));
    sa_gateway_kit::upstream::until(&gateway, "test", "ready").await;
    assert!(!operator.tool_names().await.contains(&"test__read".to_owned()));

    let event = contested(&gateway, "test").await;
    assert_eq!(event["who"], "node \"test\"");
    let report = doctor(&gateway).await;
    assert!(
        report.contains(r#"belongs to the upstream \"test\", which an operator installed; the node \"test\" lost it"#),
        "{report}"
    );
    // A plugin with this name is refused too.
    let manifest = json!({ "manifest": server.manifest("test", json!({})) });
    let reply = operator.post("/v1/plugins", &manifest).await;
    assert_eq!(reply.status, 409, "{}", reply.text);
    gateway.stop().await;
}

#[tokio::test]
async fn a_disabled_plugin_or_upstream_server_keeps_its_id() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let server = PluginServer::echo().await;
    let config =
        format!("{}\n[upstream.off]\ncommand = [\"true\"]\nenabled = false\n", server.allowed());
    let start = || Setup::new().config(&config).in_dir(&dir).start();
    let gateway = start().await;
    let manifest = json!({ "manifest": server.manifest("mail", json!({})) });
    assert_eq!(gateway.operator().post("/v1/plugins", &manifest).await.status, 201);
    assert_eq!(gateway.operator().post("/v1/plugins/mail/disable", &json!({})).await.status, 200);
    let refused = async |gateway: &Gateway| {
        for (id, kind) in [("mail", "plugin"), ("off", "upstream")] {
            let mut node = Hello::new(id).tool("run").greet(gateway).await.unwrap();
            let (code, why) = node.closed().await;
            assert!(
                code == 4409 && why.contains(&format!("belongs to the {kind}")),
                "{code} {why}"
            );
        }
        let names = gateway.operator().tool_names().await;
        assert!(
            !names.iter().any(|name| name.starts_with("mail") || name.starts_with("off")),
            "{names:?}"
        );
    };
    refused(&gateway).await;
    gateway.stop().await;
    let gateway = start().await;
    refused(&gateway).await;
    assert_eq!(gateway.operator().post("/v1/plugins/mail/enable", &json!({})).await.status, 200);
    assert!(gateway.operator().tool_names().await.contains(&"mail__run".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn the_demo_has_a_token_and_nodes_without_one_can_still_connect() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    let _open = Hello::new("open").tool("demo.echo").tool("Bash").connect(&gateway).await;
    let names = operator.tool_names().await;
    assert!(names.contains(&"open__Bash".to_owned()), "{names:?}");
    assert_eq!(
        operator.call("demo_echo", json!({ "text": "x" })).await.result(),
        json!({ "text": "x" })
    );
    let mut impostor = Hello::new("demo").tool("x").greet(&gateway).await.unwrap();
    assert_eq!(impostor.closed().await.0, 4409);
    // Once an operator creates a node token, nodes without a token are refused.
    gateway.token(json!({ "name": "mac", "role": "node" })).await;
    assert!(Hello::new("late").tool("x").greet(&gateway).await.is_err());
    gateway.stop().await;
}

/// An older version allowed it, and a configuration file can still cause it.
#[tokio::test]
async fn a_store_with_one_id_in_two_kinds_opens_and_doctor_names_both() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let server = PluginServer::echo().await;
    let allowed = server.allowed();
    let gateway = Setup::new().config(&allowed).in_dir(&dir).spawn(SWITCHBOARD).await;
    gateway.token(json!({ "name": "station", "role": "node", "node_id": "weather" })).await;
    let manifest = json!({ "manifest": server.manifest("weather", json!({})) });
    assert_eq!(gateway.operator().post("/v1/plugins", &manifest).await.status, 201);
    gateway.stop().await;

    let config = format!("{allowed}\n[upstream.weather]\nurl = \"http://127.0.0.1:9/mcp\"\n");
    let gateway = Setup::new().config(&config).in_dir(&dir).spawn(SWITCHBOARD).await;
    let result = gateway.operator().call("weather__run", json!({ "city": "Bern" })).await.result();
    assert_eq!(result["got"]["city"], "Bern", "{result}");
    let report = doctor(&gateway).await;
    for expected in [
        r#"the upstream \"weather\" and the plugin \"weather\" have the same id"#,
        r#"the token \"station\" is for the node id \"weather\", which the plugin \"weather\" uses"#,
    ] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    gateway.stop().await;
}
