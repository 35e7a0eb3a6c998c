//! A sign-in link is never written to a log or a file, and the command line creates new ones.

use reqwest::Client;
use sa_gateway_kit::{Gateway, Setup, find_in_files};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

async fn new_code(gateway: &Gateway) -> String {
    let link = gateway.operator().post("/v1/console/links", &json!({})).await;
    assert_eq!(link.status, 201, "{}", link.text);
    link.body["path"].as_str().unwrap().strip_prefix("/console/#code=").unwrap().to_owned()
}

async fn sign_in(gateway: &Gateway, body: Value) -> (u16, Value) {
    let request = Client::new().post(format!("{}/v1/console/sign-in", gateway.url)).json(&body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn no_code_and_no_session_is_written_anywhere() {
    let gateway = Setup::new().env("RUST_LOG", "debug").spawn(SWITCHBOARD).await;
    assert!(!gateway.stderr().contains("#code="), "a log is no place for a link");
    let code = new_code(&gateway).await;
    let (_, session) = sign_in(&gateway, json!({ "code": code })).await;
    let token = session["token"].as_str().unwrap();
    for secret in [code.as_str(), token] {
        assert!(find_in_files(&gateway.data_dir(), secret).is_empty());
        assert!(!gateway.stderr().contains(secret));
        for path in ["/v1/audit", "/v1/tokens", "/metrics"] {
            assert!(!gateway.operator().get_text(path).await.contains(secret), "{path}");
        }
    }
}

#[tokio::test]
async fn the_command_line_gives_a_new_link() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let said = gateway.cli(&["console"]).run().await;
    let link = said.assert_code(0).stdout.trim();
    let code = link.strip_prefix(&format!("{}/console/#code=", gateway.url)).unwrap();
    assert_eq!(sign_in(&gateway, json!({ "code": code })).await.0, 201);
    let json = gateway.cli(&["console", "--json"]).run().await.json();
    assert!(json["path"].as_str().unwrap().starts_with("/console/#code="), "{json}");
}
