//! Rule: a handle belongs to one participant, in any spelling.

use serde_json::{Value, json};

use crate::gateway::{attach, names};
use crate::kit::Server;

#[tokio::test]
async fn handles_are_equal_without_case_and_at() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    ann.update(json!({ "name": "Ann", "handle": "Helper" })).await;
    let mut eve = server.join("token=eve").await;
    let mut bob = server.join("token=bob").await;
    for handle in ["helper", "@HELPER", "Helper"] {
        let update =
            json!({ "action": "update-metadata", "payload": { "handle": handle }, "ref": 9 });
        bob.send(update).await;
        // Deployed clients recognize a conflict by a presence of another participant with their
        // own handle.
        let presence = bob.next().await.unwrap();
        assert_eq!(
            (&presence["type"], &presence["senderId"]),
            (&json!("presence"), &json!("ann")),
            "{presence}"
        );
        let expected =
            json!({ "action": "update", "metadata": { "name": "Ann", "handle": handle } });
        assert_eq!((&presence["payload"], &presence["id"]), (&expected, &Value::Null));
        let refused = bob.next().await.unwrap();
        assert_eq!(
            (&refused["code"], &refused["ref"]),
            (&json!("handle-conflict"), &json!(9)),
            "{refused}"
        );
    }
    ann.update(json!({ "handle": "other" })).await;
    assert_eq!(bob.update(json!({ "handle": "HELPER" })).await["kind"], "persisted");
    for expected in ["other", "HELPER"] {
        let update = eve.until(|frame| frame["payload"]["action"] == "update").await;
        assert_eq!(
            update["payload"]["metadata"]["handle"], expected,
            "a conflict is nobody else's business"
        );
    }
    // No participant can take the gateway's own handle.
    assert_eq!(eve.update(json!({ "handle": "@Switchboard" })).await["code"], "handle-conflict");
}

#[tokio::test]
async fn a_conflict_with_the_gateway_keeps_its_tools() {
    let server = Server::start().await;
    let _node = attach(&server, &["demo_echo", "secret"]);
    let mut ann = server.join("token=ann&tools=demo*").await;
    let payload = json!({ "handle": "@Switchboard" });
    ann.send(json!({ "action": "update-metadata", "payload": payload, "ref": 9 })).await;
    let presence = ann.next().await.unwrap();
    assert_eq!(presence["senderId"], "switchboard", "{presence}");
    let metadata = &presence["payload"]["metadata"];
    assert_eq!((&metadata["handle"], names(metadata)), (&json!("@Switchboard"), vec!["demo_echo"]));
    assert_eq!(ann.next().await.unwrap()["code"], "handle-conflict");
}

#[tokio::test]
async fn a_handle_may_have_blanks_and_several_scripts() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    for handle in ["My Helper", "Помощник AI", "🙂"] {
        assert_eq!(ann.update(json!({ "handle": handle })).await["kind"], "persisted", "{handle}");
    }
    let refused = ann.update(json!({ "handle": "ann\u{200b}" })).await;
    assert_eq!(refused["code"], "validation-error");
}
