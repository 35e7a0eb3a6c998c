//! For an upstream server over Streamable HTTP, the gateway renews its session, detects its
//! absence, and sends it only its own credentials.

use rmcp::model::ReadResourceRequestParams;
use sa_testkit::mcp::{Era, connect};
use sa_testkit::upstream::{HttpServer, until, upstream};
use sa_testkit::{Gateway, Setup, assert_nowhere, eventually};
use serde_json::json;

use crate::serve::Serve as _;
use crate::server::server_program;

async fn behind(server: &HttpServer, more: &str) -> Gateway {
    let gateway = Setup::new().config(&server.config(more)).serve().await;
    until(&gateway, "web", "ready").await;
    gateway
}

#[tokio::test]
async fn tools_are_called_in_both_eras() {
    for era in ["old", "new"] {
        let server = HttpServer::start(&server_program(), "127.0.0.1:0", era).await;
        let gateway = behind(&server, "").await;
        let agent = gateway.operator();
        let result = agent.call("web__echo", json!({ "text": era })).await.result();
        assert_eq!(result["text"], era);
        agent.call("web__change", json!({})).await.result();
        eventually("the changed list", || async {
            agent.tool_names().await.contains(&"web__late".to_owned()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_renewed_and_the_call_goes_through() {
    for (more, sessions) in [("", 2), ("isolate = false", 1)] {
        let server = HttpServer::start(&server_program(), "127.0.0.1:0", "old").await;
        let gateway = behind(&server, more).await;
        let agent = gateway.operator();
        assert_eq!(agent.call("web__echo", json!({ "text": "a" })).await.result()["text"], "a");
        let forget = async || {
            let forget =
                reqwest::Client::new().post(format!("{}/forget", server.url)).send().await.unwrap();
            forget.text().await.unwrap().parse::<usize>().unwrap()
        };
        assert!(
            forget().await >= sessions,
            "one of the gateway's own, one of the caller's if they do not share it"
        );
        assert_eq!(agent.call("web__echo", json!({ "text": "b" })).await.result()["text"], "b");
        until(&gateway, "web", "ready").await;
        // A read is not a call that the router could retry.
        let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
        client.read_resource(ReadResourceRequestParams::new("note://one")).await.unwrap();
        forget().await;
        client.read_resource(ReadResourceRequestParams::new("note://one")).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_went_away_is_offline_and_found_again() {
    let mut server = HttpServer::start(&server_program(), "127.0.0.1:0", "new").await;
    let gateway = Setup::new()
        .config("[limits]\nreconnect_wait_ms = 0")
        .config(&server.config(""))
        .serve()
        .await;
    until(&gateway, "web", "ready").await;
    let agent = gateway.operator();
    server.kill().await;
    agent.call("web__echo", json!({ "text": "a" })).await.assert_problem(503, "offline");
    let offline = upstream(&gateway, "web").await;
    assert_ne!(offline["state"], "ready", "{offline}");
    let _again = HttpServer::start(&server_program(), &server.address(), "new").await;
    until(&gateway, "web", "ready").await;
    assert_eq!(agent.call("web__echo", json!({ "text": "b" })).await.result()["text"], "b");
}

#[tokio::test]
async fn a_server_that_is_not_there_delays_nothing() {
    let config = "[upstream.web]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let gateway = Setup::new().config(config).serve().await;
    assert_eq!(gateway.operator().tool_names().await, Vec::<String>::new());
    until(&gateway, "web", "offline").await;
}

#[tokio::test]
async fn only_the_server_s_own_credentials_reach_it() {
    const OWN: &str = "its-own-canary-8261";
    let server = HttpServer::start(&server_program(), "127.0.0.1:0", "new").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, OWN).unwrap();
    let more = format!(
        "bearer = \"file:{}\"\nheaders = {{ X-Plain = \"masked-canary-5512\" }}",
        file.display()
    );
    let gateway = behind(&server, &more).await;
    let (_, token) = gateway.token(json!({ "name": "caller", "role": "agent" })).await;
    let seen = gateway.agent(&token).call("web__headers", json!({})).await;
    assert_nowhere(&token, &[("what the server saw", &seen.text)]);
    assert_nowhere(&gateway.operator, &[("what the server saw", &seen.text)]);
    assert!(seen.text.contains(OWN), "its own token reaches it: {}", seen.text);
    let list = gateway.operator().get("/v1/upstream").await.text;
    assert_nowhere(OWN, &[("the list", &list)]);
    assert_nowhere("masked-canary-5512", &[("the list", &list)]);
}
