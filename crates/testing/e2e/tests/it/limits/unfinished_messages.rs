//! The received parts of unfinished messages share one budget for all callers and one for all
//! nodes, and they count as a sign of life.

use futures_util::{SinkExt as _, StreamExt as _};
use sa_gateway_kit::{Hello, Message, Participant, Setup, soon};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

use crate::SWITCHBOARD;
use crate::limits::bystanders::{Scene, piece};

type Socket = WebSocketStream<TcpStream>;

/// Three messages that have arrived as far as [`begin`] sends them take three quarters of each
/// budget.
const ROOM: &str = "[limits]\nrequest_bytes = 1_200_000\n[nodes]\nmessage_bytes = 1_200_000";

/// Begins a message, and sends a ping to learn when this part has arrived. A gateway without budget
/// for it may close the connection meanwhile.
async fn begin(socket: &mut Socket, start: &str) {
    let begun = format!("{start}{}", " ".repeat(300_000));
    let _ = socket.feed(piece(begun.as_bytes(), Data::Text, false)).await;
    let _ = socket.send(Message::Ping("has it come?".into())).await;
}

/// Waits until the gateway confirms that.
async fn has_come(socket: &mut Socket) {
    let said = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Pong(_))) => return,
                Some(Ok(Message::Text(_) | Message::Ping(_))) => {}
                other => panic!("expected a pong, got {other:?}"),
            }
        }
    };
    soon(said).await;
}

async fn end(socket: &mut Socket, rest: &str) {
    socket.send(piece(rest.as_bytes(), Data::Continue, true)).await.unwrap();
}

#[tokio::test]
async fn who_finds_no_room_for_a_large_message_is_sent_away_alone() {
    const NODE: &str = r#"{"type":"ping""#;
    const CALL: &str = r#"{"type":"call","id":"1""#;
    const CHANNEL: &str = r#"{"action":"publish","type":"a","ref":7"#;
    let scene = Scene::start(ROOM).await;
    let agent = scene.gateway.new_agent("busy").await;
    let (mut socket, mut other) = (agent.socket().await, agent.socket().await);
    let mut participant = scene.participant().await;
    for (socket, start) in
        [(&mut socket.socket, CALL), (&mut other.socket, CALL), (&mut participant.socket, CHANNEL)]
    {
        begin(socket, start).await;
        has_come(socket).await;
    }
    // Callers do not use the nodes' budget.
    let mut node = scene.node().await;
    let others = [
        Hello::new("first").connect(&scene.gateway).await,
        Hello::new("second").connect(&scene.gateway).await,
    ];
    let [mut first, mut second] = others;
    for node in [&mut node, &mut first, &mut second] {
        begin(&mut node.socket, NODE).await;
        has_come(&mut node.socket).await;
    }
    for number in 0..3 {
        let name = format!("late-{number}");
        let mut node = Hello::new(&name).connect(&scene.gateway).await;
        begin(&mut node.socket, NODE).await;
        let mut socket = agent.socket().await;
        begin(&mut socket.socket, CALL).await;
        let mut participant = Participant::join(&scene.gateway, "room", &name).await;
        begin(&mut participant.socket, CHANNEL).await;
        for (code, why) in [node.closed().await, socket.closed().await, participant.closed().await]
        {
            assert_eq!((code, why.contains("used up")), (1013, true), "{why}");
        }
    }
    // The first peers have a budget for the rest, and release it afterwards.
    end(&mut node.socket, r#","timestamp":77}"#).await;
    assert_eq!(node.recv().await, json!({ "type": "pong", "timestamp": 77 }));
    end(&mut socket.socket, r#","tool":"bystander.echo","args":{"x":1}}"#).await;
    assert_eq!(socket.wait_for("done", "1").await["result"], json!({ "x": 1 }));
    end(&mut participant.socket, r#","payload":"said"}"#).await;
    assert_eq!(participant.answer(7).await["payload"], "said");
    let mut late = Hello::new("late").connect(&scene.gateway).await;
    begin(&mut late.socket, NODE).await;
    has_come(&mut late.socket).await;
    scene
        .end(&[("node", "no_room", 3), ("calls_ws", "no_room", 3), ("channel", "no_room", 3)])
        .await;
}

#[tokio::test]
async fn who_sends_a_long_message_slowly_is_not_silent() {
    let config = "[nodes]\nping_interval_ms = 100\ndead_after_ms = 1_000";
    let gateway = Setup::new().config(config).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("slow").connect(&gateway).await;
    // Raw bytes, because a library would answer pings.
    let stream = node.socket.get_mut();
    let message = format!("{}{}", " ".repeat(100_000), json!({ "type": "ping", "timestamp": 77 }));
    // The header of a text frame, with a mask of zeros.
    let header = [&[0x81, 0xff][..], &(message.len() as u64).to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&header).await.unwrap();
    // The gateway pings after 100 ms without data. The total is longer than the limit for a dead
    // connection.
    let (slowly, rest) = message.as_bytes().split_at(12);
    for byte in slowly {
        let mut ping = [0; 2];
        soon(stream.read_exact(&mut ping)).await.expect("the gateway should wait for the rest");
        assert_eq!(ping, [0x89, 0]);
        stream.write_all(&[*byte]).await.unwrap();
    }
    stream.write_all(rest).await.unwrap();
    assert_eq!(node.recv().await, json!({ "type": "pong", "timestamp": 77 }));
    assert_eq!(gateway.refused("node", "silent").await, 0);
    gateway.stop().await;
}
