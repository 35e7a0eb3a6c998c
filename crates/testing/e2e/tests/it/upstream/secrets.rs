//! The program of an upstream server receives no secret of the gateway or its callers.

use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Setup, assert_nowhere};
use serde_json::json;

use crate::upstream::server::stdio;

#[tokio::test]
async fn no_secret_of_the_gateway_or_its_callers_reaches_a_program() {
    const KEY: &str = "gateway-canary-7710";
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("tool", &[], dir.path(), "");
    let setup = Setup::new().config(&config).env("SA_NODE_TOKEN", KEY).env("MY_PASSWORD", KEY);
    let gateway = setup.spawn(crate::SWITCHBOARD).await;
    until(&gateway, "tool", "ready").await;
    let (_, token) = gateway.token(json!({ "name": "caller", "role": "agent" })).await;
    let seen = gateway.agent(&token).call("tool__headers", json!({})).await;
    assert!(seen.text.contains("SERVER_DIR"), "it sees an environment: {}", seen.text);
    for secret in [&*token, &*gateway.operator, KEY] {
        assert_nowhere(secret, &[("what the program saw", &seen.text)]);
    }
    gateway.stop().await;
}
