//! On SIGTERM the gateway logs its open work, lets running calls end, refuses new ones with the
//! reason, and notifies every connection. It exits with 0. A call that takes too long is cut off,
//! and a second signal cuts off all of them at once.

use rustix::process::Signal;
use sa_gateway_kit::{Gateway, Hello, Setup, soon};
use serde_json::{Value, json};

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
    // New calls on an open connection are refused, while running calls continue.
    sa_gateway_kit::eventually("new calls refused", || async {
        gateway.stderr().contains("stopping").then_some(())
    })
    .await;
    let refused = loop {
        socket.call("new", "a.b", json!({})).await;
        tokio::select! {
            frame = socket.recv() => break frame,
            // This call was still in time.
            request = node.request() => {
                node.answer(&request.id, json!(0)).await;
                socket.recv().await;
            }
        }
    };
    assert_eq!(
        (&refused["kind"], &refused["retryable"]),
        (&json!("offline"), &json!(true)),
        "{refused}"
    );
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
async fn a_call_that_takes_too_long_is_cut_off_which_is_no_cancel() {
    let mut gateway = Setup::new().config("[server]\ndrain_ms = 200").spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let typed = gateway.cli(&["call", "a.b"]).start();
    node.request().await;
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    node.request().await;
    gateway.begin_stop();
    for _ in 0..3 {
        let frame = node.recv().await;
        assert_eq!(
            (&frame["type"], &frame["reason"]),
            (&json!("tool_cancel"), &json!("shutdown")),
            "{frame}"
        );
    }
    assert_eq!(node.closed().await.0, 1001);
    let reply = call.await.unwrap();
    reply.assert_problem(503, "offline");
    assert!(reply.detail().contains("may have had an effect"), "{}", reply.text);
    assert_eq!(reply.body["retryable"], false);
    assert_eq!(events.wait_for("error").await["kind"], "offline");
    // The same exit code as after any other interrupted call.
    typed.end().await.assert_code(10);
    assert_eq!(gateway.exit_code().await, Some(0));
    assert_eq!(cut_off_calls(&gateway).await, 3);
}

/// Restarts the gateway and returns the number of calls in its history, all of which were cut off.
async fn cut_off_calls(gateway: &Gateway) -> usize {
    let gateway = Setup::new().on(gateway).spawn(SWITCHBOARD).await;
    let history = gateway.operator().get("/v1/calls").await.body;
    let calls = history["calls"].as_array().unwrap();
    let why = |call: &Value| (call["error"]["kind"].clone(), call["error"]["message"].to_string());
    for (kind, message) in calls.iter().map(why) {
        assert!(
            kind == "offline" && message.contains("the gateway shut down"),
            "{kind}: {message}"
        );
    }
    let count = calls.len();
    gateway.stop().await;
    count
}

#[tokio::test]
async fn whoever_asks_while_calls_still_run_is_told_that_it_shuts_down() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    gateway.begin_stop();
    let said = "1 call is still running and may take up to 30 s; Ctrl-C or another SIGTERM stops the gateway now";
    sa_gateway_kit::eventually("what it waits for", || async {
        gateway.stderr().contains(said).then_some(())
    })
    .await;
    // Each of these requests uses a new connection.
    sa_gateway_kit::eventually("not ready", || async {
        (gateway.operator().get("/readyz").await.status == 503).then_some(())
    })
    .await;
    assert_eq!(gateway.operator().get("/healthz").await.status, 200);
    let refused = gateway.operator().call("a.b", json!({})).await;
    refused.assert_problem(503, "offline");
    assert_eq!(refused.body["retryable"], true);
    let typed = gateway.cli(&["call", "a.b"]).run().await;
    assert!(
        typed.assert_code(8).stderr.contains("the gateway is shutting down"),
        "{}",
        typed.stderr
    );
    let status = gateway.cli(&["status"]).run().await;
    assert!(status.assert_code(0).stdout.contains("SHUTTING DOWN"), "{}", status.stdout);
    node.answer(&request.id, json!("in time")).await;
    assert_eq!(call.await.unwrap().result(), "in time");
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
    sa_gateway_kit::eventually("the first signal", || async {
        gateway.stderr().contains("stopping").then_some(())
    })
    .await;
    gateway.signal(rustix::process::Signal::INT);
    assert_eq!(node.closed().await.0, 1001);
    call.await.unwrap().assert_problem(503, "offline");
    assert_eq!(gateway.exit_code().await, Some(130));
    assert!(gateway.stderr().contains("stopping now: 1 call cancelled"), "{}", gateway.stderr());
    assert!(!gateway.data_dir().join("endpoint").exists());
    assert_eq!(cut_off_calls(&gateway).await, 1);
}

#[tokio::test]
async fn the_demo_node_stays_until_its_calls_have_ended() {
    let mut gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    sa_gateway_kit::eventually("the demo node", || async {
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

#[tokio::test]
async fn a_closed_terminal_is_told_twice_and_cuts_off_nothing() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    gateway.signal(Signal::HUP);
    sa_gateway_kit::eventually("its end", || async {
        gateway.stderr().contains("stopping").then_some(())
    })
    .await;
    gateway.signal(Signal::HUP);
    assert_eq!(gateway.operator().get("/readyz").await.status, 503);
    node.answer(&request.id, json!("drained")).await;
    assert_eq!(call.await.unwrap().result(), "drained");
    assert_eq!(gateway.exit_code().await, Some(0));
}

#[tokio::test]
async fn under_nohup_a_closed_terminal_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("nohup");
    std::fs::write(&program, format!("#!/bin/sh\ntrap '' HUP\nexec '{SWITCHBOARD}' \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let gateway = Setup::new().spawn(program.to_str().unwrap()).await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    gateway.signal(Signal::HUP);
    assert_eq!(gateway.operator().call("a.b", json!({})).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn while_it_stops_no_new_node_is_welcome_and_one_that_comes_back_is() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = node.request().await;
    let gone = Hello::new("back").capability("b").connect(&gateway).await;
    gateway.begin_stop();
    sa_gateway_kit::eventually("its end", || async {
        gateway.stderr().contains("stopping").then_some(())
    })
    .await;
    drop(gone);
    // A running call may wait for this node.
    let _back = Hello::new("back").capability("b").connect(&gateway).await;
    let mut late = Hello::new("late").capability("c").greet(&gateway).await.unwrap();
    let (code, reason) = late.closed().await;
    assert!(code == 1001 && reason.contains("shutting down"), "{code} {reason}");
    node.answer(&request.id, json!("drained")).await;
    assert_eq!(call.await.unwrap().result(), "drained");
    assert_eq!(gateway.exit_code().await, Some(0));
}
