//! The root path of the gateway accepts participants of channels, too.

use sa_gateway_kit::{Participant, Setup};
use serde_json::json;

#[tokio::test]
async fn the_gateways_own_address_is_a_channels_socket_too() {
    let gateway = Setup::new().start().await;
    let token = Participant::token(&gateway, "ann").await;
    let mut ann = Participant::connect(&gateway, &format!("/?token={token}&channel=room")).await;
    let ready = ann.recv().await;
    assert_eq!((&ready["kind"], &ready["participantId"]), (&json!("ready"), &json!("ann")));
    let join = ann.recv().await;
    assert_eq!(join["payload"], json!({ "action": "join", "metadata": {} }));
    let sent = ann
        .say("message", json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "hello" }))
        .await;
    assert_eq!((&sent["kind"], &sent["senderId"]), (&json!("persisted"), &json!("ann")));
    assert!(sent["ts"].as_i64().unwrap() > 1_700_000_000_000);
    let page = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let page = page.get(&gateway.url).send().await.unwrap();
    assert_eq!(page.headers()["location"], "/console/", "people are shown the console");
    gateway.stop().await;
}
