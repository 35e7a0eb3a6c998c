//! `server.max_connections` limits open connections of all kinds, including WebSockets, and a gauge
//! counts them.

use sa_gateway_kit::{FakeNode, Gateway, Hello, RawHttp, Setup, eventually, soon};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn open(metrics: &str) -> u64 {
    let line = metrics.lines().find(|line| line.starts_with("switchboard_connections ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place() {
    let gateway = Setup::new().config("[server]\nmax_connections = 3").start().await;
    let operator = gateway.operator();
    let first = Hello::new("a").connect(&gateway).await;
    let _second = Hello::new("b").connect(&gateway).await;
    let metrics = operator.get_text("/metrics").await;
    assert_eq!(open(&metrics), 3, "two nodes and the one that asks");
    // The limit is reached: the connection is closed without an answer.
    assert_eq!(RawHttp::connect(&gateway).await.read_to_end().await, "");
    assert!(operator.get_text("/metrics").await.contains("too_many_connections"));
    drop(first);
    eventually("the place to be free", || async {
        (open(&operator.get_text("/metrics").await) == 2).then_some(())
    })
    .await;
    let _third = Hello::new("c").connect(&gateway).await;
}

/// Requests an upgrade and reads only the first line of the answer. Returns `false` when the
/// connection was closed.
async fn is_upgraded(raw: &mut RawHttp, gateway: &Gateway, path: &str) -> bool {
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\n", gateway.address());
    let upgrade = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let _ = raw.stream.write_all(format!("{head}{upgrade}\r\n").as_bytes()).await;
    let mut line = [0; 12];
    soon(raw.stream.read_exact(&mut line)).await.is_ok_and(|_| line == *b"HTTP/1.1 101")
}

#[tokio::test]
async fn sockets_without_a_valid_token_keep_no_operator_out() {
    for path in ["/v1/channels/ws?token=bad&channel=a", "/v1/nodes/ws?node_id=n"] {
        let gateway = Setup::new().config("[server]\nmax_connections = 160").start().await;
        let (mut sockets, mut upgraded) = (Vec::new(), 0);
        for _ in 0..200 {
            let mut raw = RawHttp::connect(&gateway).await;
            upgraded += u32::from(is_upgraded(&mut raw, &gateway, path).await);
            sockets.push(raw);
        }
        let operator = gateway.operator();
        assert!(
            upgraded >= 120 && operator.get("/v1/status").await.status == 200,
            "{path}: {upgraded}"
        );
        drop(sockets);
    }
}

#[tokio::test]
async fn a_node_that_leaves_before_its_hello_leaves_nothing_behind() {
    let gateway = Setup::new().start().await;
    for _ in 0..20 {
        drop(FakeNode::upgrade(&gateway, "").await.unwrap());
    }
    eventually("the connections ended", || async {
        let metrics = gateway.operator().get_text("/metrics").await;
        let open =
            metrics.lines().find_map(|line| line.strip_prefix("switchboard_connections "))?;
        (open.parse::<u32>().unwrap() <= 2).then_some(())
    })
    .await;
    assert_eq!(gateway.operator().get("/v1/nodes").await.body["nodes"], json!([]));
}
