//! Rule: invalid input is rejected with the words that deployed clients look for.

use serde_json::{Value, json};

use crate::kit::{Participant, Server};

const ID: &str = "6f0a8a0e-7c1e-4c57-9f4e-0d6f0f6f4a11";

async fn error(participant: &mut Participant, frame: Value) -> String {
    participant.send(frame).await;
    let answer = participant.next().await.unwrap();
    assert_eq!(
        (&answer["kind"], &answer["code"]),
        (&json!("error"), &json!("validation-error")),
        "{answer}"
    );
    answer["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn ids_in_messages_are_uuids() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let simple = ID.replace('-', "");
    for (payload, named) in [
        (json!({ "id": "m1", "content": "x" }), "\"id\" is \"m1\""),
        (json!({ "id": simple, "content": "x" }), "UUID"),
        (json!({ "id": ID, "content": "x", "replyTo": "m0" }), "\"replyTo\" is \"m0\""),
    ] {
        let refused = ann.say("message", payload).await;
        let text = refused["error"].as_str().unwrap();
        assert_eq!(refused["code"], "validation-error");
        assert!(
            text.contains("invalid") && text.contains("UUID") && text.contains(named),
            "{text}"
        );
    }
    let message = json!({ "id": ID.to_uppercase(), "content": "x", "replyTo": ID });
    assert_eq!(ann.say("message", message).await["kind"], "persisted");
}

#[tokio::test]
async fn refusals_contain_the_words_that_clients_match() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let unknown = error(&mut ann, json!({ "action": "fly", "ref": 1 })).await;
    assert!(
        unknown.starts_with("unknown action \"fly\"") && !unknown.contains("invalid"),
        "{unknown}"
    );
    for frame in [json!([]), json!({ "action": "publish", "ref": 1 }), json!({ "ref": 1 })] {
        let text = error(&mut ann, frame.clone()).await;
        assert!(text.contains("invalid message format"), "{frame}: {text}");
    }
    for (kind, payload) in
        [("", json!(1)), ("method-call", json!({ "callId": "1" })), ("error", json!([]))]
    {
        let text =
            error(&mut ann, json!({ "action": "publish", "type": kind, "payload": payload })).await;
        assert!(text.contains("invalid"), "{kind}: {text}");
    }
    let mut nameless = server.connect_to("", "token=ann").await;
    let (code, reason) = nameless.closed().await;
    assert!(code == 4002 && reason.contains("channel required"), "{code} {reason}");
    let (code, reason) = server.connect("token=switchboard").await.closed().await;
    assert!(code == 4001 && reason.contains("unauthorized"), "{code} {reason}");
}
