//! A web page in Chromium joins a channel. An agent calls its method over HTTP, a participant
//! receives its picture, and the page reconnects after a kill of the gateway.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use sa_gateway_kit::{Cli, Participant, Setup};
use serde_json::json;
use tokio::net::TcpListener;

use crate::SWITCHBOARD;
use crate::messaging::javascript::package;

const PAGE: &str = "<!doctype html><title>A page</title><h1>Welcome</h1><script type=module src=/page.js></script>";

#[tokio::test]
async fn a_page_offers_methods_to_agents_and_participants() {
    let place = tempfile::tempdir().unwrap();
    let script =
        |name: &str| package().join("programs/browser").join(name).to_str().unwrap().to_owned();
    let bundle = Cli::new("node")
        .args(&[&script("bundle.mjs"), place.path().join("site").to_str().unwrap()])
        .run()
        .await;
    bundle.assert_code(0);
    let page = std::fs::read_to_string(place.path().join("site/page.js")).unwrap();
    assert!(!page.contains("Sec-WebSocket-Key"), "what is for Node.js alone is not in the bundle");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let javascript = [("content-type", "text/javascript")];
    let site = Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/page.js", get(move || async move { (javascript, page) }));
    let serving = tokio::spawn(async move { axum::serve(listener, site).await });

    let config = format!("server.allowed_origins = [{origin:?}]");
    let mut gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let token = Participant::token(&gateway, "tab").await;
    let address = format!("{origin}/?server={}&token={token}&channel=room", gateway.url);
    let profile = place.path().join("profile");
    let browser =
        Cli::new("node").args(&[&script("open.mjs"), &address, profile.to_str().unwrap()]).start();
    browser.says("joined as tab").await;

    let agent = gateway.new_agent("agent").await;
    let read = json!({ "args": { "selector": "h1" } });
    let reply = agent.post("/v1/tools/pubsub_tab_read/call?channel=room", &read).await;
    assert_eq!((reply.status, &reply.body["result"]), (200, &json!("Welcome")));

    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let draw = json!({ "size": 16, "color": "teal" });
    ann.say(
        "method-call",
        json!({ "callId": "c1", "methodName": "draw", "providerId": "tab", "args": draw }),
    )
    .await;
    assert_eq!(ann.message("method-result").await["payload"]["progress"], 50);
    let drawn = ann.message("method-result").await;
    let picture: Vec<u8> = serde_json::from_value(drawn["bytes"].clone()).unwrap();
    assert_eq!(drawn["payload"]["content"], json!({ "size": 16, "bytes": picture.len() }));
    assert_eq!(drawn["attachmentMeta"][0]["id"], "square");
    assert!(
        picture.starts_with(b"\x89PNG") && picture.ends_with(b"IEND\xaeB`\x82"),
        "a picture, and all of it"
    );
    ann.say(
        "message",
        json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "thank you" }),
    )
    .await;
    browser.says("ann: thank you").await;
    drop(ann);

    let gateway_address = gateway.address().to_owned();
    gateway.kill().await;
    gateway =
        Setup::new().config(&config).on(&gateway).at(&gateway_address).spawn(SWITCHBOARD).await;
    browser.says("reconnected").await;
    let reply = agent.post("/v1/tools/pubsub_tab_read/call?channel=room", &read).await;
    assert_eq!((reply.status, &reply.body["result"]), (200, &json!("Welcome")));

    browser.signal(rustix::process::Signal::TERM);
    browser.end().await.assert_code(0);
    serving.abort();
    gateway.stop().await;
}
