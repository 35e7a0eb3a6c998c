//! The log has the reason for which a connection was closed.

use sa_gateway_kit::{Hello, Message, Setup, eventually};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};

#[tokio::test]
async fn a_close_is_logged_as_what_it_was() {
    let gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    let closes = [
        ("without", None, 1005, "closed by the peer"),
        // This code must not appear in a close frame.
        ("with", Some(1005_u16), 1002, "the peer closed with an invalid close code"),
        ("own", Some(4_000), 4_000, "why"),
    ];
    for (id, code, logged, reason) in closes {
        let mut node = Hello::new(id).capability(id).connect(&gateway).await;
        let frame = code.map(|code| CloseFrame { code: code.into(), reason: "why".into() });
        node.send_raw(Message::Frame(Frame::close(frame))).await;
        let line = eventually("the end in the log", || async {
            let lines = gateway.stderr();
            let mut lines =
                lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["message"] == "node disconnected" && line["node"] == id)
        })
        .await;
        assert_eq!((&line["code"], &line["reason"]), (&json!(logged), &json!(reason)));
    }
}
