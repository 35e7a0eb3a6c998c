//! `server.max_connections` bounds connections of all kinds for as long as they are open, WebSockets included, and the
//! gauge says how many there are.

use sa_testkit::{Hello, RawHttp, Setup, eventually};

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
    // There is no place left: the connection is closed before it is answered.
    assert_eq!(RawHttp::connect(&gateway).await.read_to_end().await, "");
    assert!(operator.get_text("/metrics").await.contains("too_many_connections"));
    drop(first);
    eventually("the place to be free", || async { (open(&operator.get_text("/metrics").await) == 2).then_some(()) })
        .await;
    let _third = Hello::new("c").connect(&gateway).await;
}
