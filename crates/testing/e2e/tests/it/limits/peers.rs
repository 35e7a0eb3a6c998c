//! A peer that connects, stays, answers or leaves in a wrong way gets a clear error or a closed
//! connection. It costs bounded memory, is counted, and never disturbs another call. Its messages
//! are valid; see `counted_messages` for invalid messages.

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use sa_gateway_kit::{FakeNode, Hello, Message, Participant, RawHttp, Reply, TIMEOUT, soon};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

use crate::limits::bystanders::{Scene, piece, refusals};

#[tokio::test]
async fn a_node_that_never_says_hello() {
    let scene = Scene::start("[nodes]\nhello_timeout_ms = 500").await;
    let mut silent = FakeNode::upgrade(&scene.gateway, "").await.unwrap();
    assert_eq!(silent.closed().await.0, 4408);
    // Fragments of a hello do not count as one either.
    let mut endless = FakeNode::upgrade(&scene.gateway, "").await.unwrap();
    endless.send_raw(piece(b"{", Data::Text, false)).await;
    assert_eq!(endless.closed().await.0, 4408);
    scene.end(&[("node", "refused", 2)]).await;
}

#[tokio::test]
async fn half_open_sockets() {
    let scene = Scene::start("[nodes]\nping_interval_ms = 300\ndead_after_ms = 2_000").await;
    // The test reads none of these connections, so the gateway's pings are not answered.
    let (mut node, mut socket) = (scene.node().await, scene.gateway.operator().socket().await);
    let mut participant = scene.participant().await;
    let gateway = &scene.gateway;
    sa_gateway_kit::eventually("all of them gone", || async {
        let refused = refusals(gateway).await;
        let silent = refused.iter().filter(|((_, reason), _)| reason == "silent");
        (silent.map(|(_, count)| count).sum::<u64>() == 3).then_some(())
    })
    .await;
    for code in [node.closed().await.0, socket.closed().await.0, participant.closed().await.0] {
        assert_eq!(code, 1006, "there is nobody to say it to");
    }
    scene.end(&[("node", "silent", 1), ("calls_ws", "silent", 1), ("channel", "silent", 1)]).await;
}

#[tokio::test]
async fn ten_thousand_pings() {
    let scene = Scene::start("").await;
    let (mut sink, stream) = scene.node().await.socket.split();
    let writer = tokio::spawn(async move {
        for timestamp in 0..10_000 {
            let ping = json!({ "type": "ping", "timestamp": timestamp }).to_string();
            sink.feed(Message::text(ping)).await.unwrap();
            sink.feed(Message::Ping(Vec::new().into())).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink
    });
    let pongs = stream
        .filter(|message| std::future::ready(matches!(message, Ok(Message::Text(_)))))
        .take(10_000);
    assert_eq!(
        soon(pongs.count()).await,
        10_000,
        "each is answered, and there is nothing wrong with them"
    );
    drop(writer.await.unwrap());
    scene.end(&[]).await;
}

#[tokio::test]
async fn replies_to_calls_that_are_not_its_own() {
    let scene = Scene::start("").await;
    let mut forger = scene.node().await;
    // Answers the bystander's call, which must not end because of it.
    forger.answer(&scene.patient.request, json!("forged")).await;
    forger.fail(&scene.patient.request, "failed", "forged").await;
    forger.answer("01890000-0000-7000-8000-000000000000", json!("of nobody's")).await;
    forger.answer("no id at all", json!(1)).await;
    forger.settle().await;
    scene.end(&[("node", "forged_reply", 2), ("node", "stray_reply", 2)]).await;
}

#[tokio::test]
async fn a_second_node_with_the_same_id() {
    let scene = Scene::start("").await;
    let gateway = &scene.gateway;
    let (_, token) = gateway.token(json!({ "name": "first", "role": "node" })).await;
    let (_, other) = gateway.token(json!({ "name": "second", "role": "node" })).await;
    let (_, bound) =
        gateway.token(json!({ "name": "third", "role": "node", "node_id": "elsewhere" })).await;
    let mut first = Hello::new("twin").token(&token).connect(gateway).await;
    let mut second = Hello::new("twin").token(&token).connect(gateway).await;
    assert_eq!(first.closed().await.0, 4410);
    for token in [other, bound] {
        let mut impostor = Hello::new("twin").token(&token).greet(gateway).await.unwrap();
        assert_eq!(impostor.closed().await.0, 4409);
    }
    second.settle().await;
    scene.end(&[("node", "replaced", 1), ("node", "impostor", 2)]).await;
}

#[tokio::test]
async fn tokens_that_are_wrong_empty_or_revoked() {
    let scene = Scene::start("").await;
    let gateway = &scene.gateway;
    let (agent, node) =
        (json!({ "name": "bot", "role": "agent" }), json!({ "name": "builder", "role": "node" }));
    let (agent, node) = (gateway.token(agent).await, gateway.token(node).await);
    for (id, _) in [&agent, &node] {
        assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    }
    for token in ["sb_wrong", "", &agent.1] {
        gateway.agent(token).get("/v1/tools").await.assert_problem(401, "unauthorized");
        let socket = gateway.agent(token).request(Method::GET, "/v1/calls/ws");
        Reply::of(socket).await.assert_problem(401, "unauthorized");
        let mut participant =
            Participant::connect(gateway, &format!("/v1/channels/ws?channel=a&token={token}"))
                .await;
        assert_eq!(participant.closed().await.0, 4001);
    }
    for token in ["sb_wrong", "", &node.1] {
        let refused = FakeNode::upgrade(gateway, &format!("token={token}")).await.unwrap_err();
        assert_eq!((refused.status, &refused.body["kind"]), (401, &json!("unauthorized")));
    }
    scene.end(&[("http", "token", 6), ("channel", "door", 3), ("node", "token", 3)]).await;
}

#[tokio::test]
async fn heads_and_bodies_that_never_end() {
    let scene = Scene::start("").await;
    let (mut head, mut body) =
        (RawHttp::connect(&scene.gateway).await, RawHttp::connect(&scene.gateway).await);
    head.write("GET /healthz HTTP/1.1\r\nhost: ").await;
    let (address, token) = (scene.gateway.address(), &scene.gateway.operator);
    let begun = format!(
        "POST /v1/tools/patient.wait/call HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"args\":"
    );
    body.write(&begun).await;
    // The gateway's timeout is longer than the usual test timeout.
    let rest = async |raw: &mut RawHttp| {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(3 * TIMEOUT, raw.stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection to be closed");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (head, body) = tokio::join!(rest(&mut head), rest(&mut body));
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    assert!(
        body.starts_with("HTTP/1.1 408") && body.contains("the request body did not arrive"),
        "{body}"
    );
    scene.end(&[("http", "slow_head", 1), ("http", "slow_body", 1)]).await;
}
