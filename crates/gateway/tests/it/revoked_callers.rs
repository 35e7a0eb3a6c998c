//! A session ends when its caller's token is revoked.

use sa_gateway_kit::sessions::{id, session};
use sa_gateway_kit::{Agent, Gateway, RelaySocket, Setup};
use serde_json::json;

async fn start() -> (Gateway, Agent) {
    let gateway = Setup::new().config("[sessions]\ncaller_grace_ms = 100").start().await;
    let caller = gateway.new_agent("ant").await;
    (gateway, caller)
}

#[tokio::test]
async fn a_revoked_token_ends_its_sessions() {
    let (gateway, _) = start().await;
    let (token_id, token) = gateway.token(json!({ "name": "short", "role": "caller" })).await;
    let session = session(&gateway.agent(&token)).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{token_id}")).await.status, 200);
    assert_eq!(agent.next().await, None);
    let seen = gateway.operator().get(&format!("/v1/sessions/{}", id(&session))).await.body;
    assert_eq!(
        (&seen["state"], &seen["reason"]),
        (&json!("ended"), &json!("the caller's token was revoked"))
    );
}
