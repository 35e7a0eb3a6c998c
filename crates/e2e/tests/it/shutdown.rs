//! SIGTERM lets running calls end, refuses new ones, tells every connection, and exits with 0; a call that takes too long
//! is cancelled.

use sa_testkit::{Hello, Setup, soon};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn running_calls_end_well_and_new_ones_are_refused() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let mut socket = operator.socket().await;
    let calls: Vec<_> = (0..20).map(|_| operator.call_later("a.b", json!({}))).collect();
    let mut requests = Vec::new();
    for _ in 0..20 {
        requests.push(node.request().await);
    }
    gateway.begin_stop();
    // Refused on a connection that is still open, while the others run.
    sa_testkit::eventually("new calls refused", || async { gateway.stderr().contains("stopping").then_some(()) }).await;
    let refused = loop {
        socket.call("new", "a.b", json!({})).await;
        tokio::select! {
            frame = socket.recv() => break frame,
            // It was in time after all.
            request = node.request() => {
                node.answer(&request.id, json!(0)).await;
                socket.recv().await;
            }
        }
    };
    assert_eq!((&refused["kind"], &refused["retryable"]), (&json!("offline"), &json!(true)), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("shutting down"), "{refused}");
    for request in requests {
        node.answer(&request.id, json!("drained")).await;
    }
    for call in calls {
        assert_eq!(call.await.unwrap().result(), "drained");
    }
    assert_eq!(node.closed().await.0, 1001);
    assert_eq!(socket.closed().await.0, 1001);
    assert_eq!(gateway.exit_code().await, Some(0));
    assert!(!gateway.data_dir().join("endpoint").exists());
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled() {
    let mut gateway = Setup::new().config("[server]\ndrain_ms = 200").spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    gateway.begin_stop();
    assert_eq!(node.cancelled(&request).await, "shutdown");
    assert_eq!(node.closed().await.0, 1001);
    call.await.unwrap().assert_problem(499, "cancelled");
    assert_eq!(gateway.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_node_that_does_not_read_cannot_hold_it_up() {
    let mut gateway = Setup::new().config("[server]\ndrain_ms = 100").spawn(SWITCHBOARD).await;
    let _deaf = Hello::new("n").capability("a").connect(&gateway).await;
    let feed = gateway.operator().follow().await;
    gateway.begin_stop();
    assert_eq!(soon(gateway.exit_code()).await, Some(0));
    drop(feed);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    gateway.begin_stop();
    sa_testkit::eventually("the first signal", || async { gateway.stderr().contains("stopping").then_some(()) }).await;
    gateway.signal(rustix::process::Signal::INT);
    assert_eq!(gateway.exit_code().await, Some(130));
    call.abort();
}

#[tokio::test]
async fn the_demo_node_stays_until_its_calls_have_ended() {
    let mut gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    sa_testkit::eventually("the demo node", || async {
        operator.tool_names().await.contains(&"demo_countdown".to_owned()).then_some(())
    })
    .await;
    let call = gateway.cli(&["call", "demo_countdown", "from=4"]).start();
    call.warns("to go").await;
    gateway.signal(rustix::process::Signal::INT);
    let ended = call.end().await;
    assert!(ended.assert_code(0).stdout.contains("counted_from"), "{}", ended.stdout);
    assert_eq!(gateway.exit_code().await, Some(0), "{}", gateway.stderr());
}
