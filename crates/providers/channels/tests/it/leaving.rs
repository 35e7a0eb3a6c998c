//! Rule: only a `close` action is a graceful leave, and the others receive the reason of each
//! leave.

use futures_util::SinkExt as _;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::kit::{Participant, Server};

#[tokio::test]
async fn a_close_is_acknowledged_before_the_socket_closes() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    ann.send(json!({ "action": "close", "ref": 7 })).await;
    assert_eq!(ann.next().await, Some(json!({ "kind": "persisted", "ref": 7 })));
    assert_eq!(ann.next().await, None);
    // Without a reference there is nothing to acknowledge.
    let mut bob = server.join("token=bob").await;
    bob.send(json!({ "action": "close" })).await;
    assert_eq!(bob.next().await, None);
}

/// Returns the reason that the others receive when a participant leaves.
async fn reason(watcher: &mut Participant) -> String {
    let left = watcher.until(|frame| frame["payload"]["action"] == "leave").await;
    left["payload"]["leaveReason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn only_the_action_close_is_a_graceful_leave() {
    let server = Server::start().await;
    let mut watcher = server.join("token=watcher").await;
    let mut ann = server.join("token=ann").await;
    ann.send(json!({ "action": "close", "ref": 1 })).await;
    while ann.next().await.is_some() {}
    assert_eq!(reason(&mut watcher).await, "graceful");
    for code in [1000, 1001] {
        let mut ann = server.join("token=ann").await;
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        ann.socket.send(Message::Close(Some(frame))).await.unwrap();
        while ann.next().await.is_some() {}
        assert_eq!(reason(&mut watcher).await, "disconnect", "{code}");
    }
    drop(server.join("token=ann").await);
    assert_eq!(reason(&mut watcher).await, "disconnect");
}
