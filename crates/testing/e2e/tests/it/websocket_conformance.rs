//! Autobahn's test suite, the official one, finds nothing to complain of in how the gateway speaks WebSocket.
//!
//! The suite wants a server that sends back what it is sent, which none of the gateway's protocols does. So a gateway is
//! started whose front door has one other route behind it: everything from the accepted socket to `sa_socket`, with its
//! limits, its outbox and its closing, is what nodes, agents and participants connect to, and only what is done with a
//! message is the test's.

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use sa_socket::{Close, Liveness, Next, Outbox, Received, SocketLimits, Upgrade, WebSocket, Work};
use sa_testkit::{Gateway, Setup};
use serde_json::json;
use switchboard::http::FrontDoor;

use crate::websocket_support::Suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_has_nothing_to_complain_of() {
    let Some(suite) = Suite::find() else { return };
    let gateway = echo().await;
    let url = gateway.url.replacen("http", "ws", 1);
    let specification = json!({ "servers": [{ "agent": "gateway", "url": url, "options": { "version": 18 } }] });
    let program = ["-m", "autobahntestsuite.wstest"];
    let output = suite.command(program, "fuzzingclient", specification, gateway.dir.path()).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    suite.judge(gateway.dir.path(), "gateway");
    gateway.stop().await;
}

/// A gateway that says what it hears to whoever connects to `/`, where no token is asked for.
async fn echo() -> Gateway {
    Setup::new()
        .start_behind(|gateway| {
            let limits = gateway.config.settings.limits.clone();
            let nodes = &gateway.config.settings.nodes;
            let millis = std::time::Duration::from_millis;
            let liveness =
                Liveness { ping_every: millis(nodes.ping_interval_ms), dead_after: millis(nodes.dead_after_ms) };
            let upgrade = move |upgrade: Upgrade| {
                let (limits, outbox) = (
                    SocketLimits { max_message_bytes: limits.max_frame_bytes, cuts: true, budget: None },
                    Outbox::new(limits.max_outbox_bytes, Close::new(4429, "the reader is too slow")),
                );
                std::future::ready(upgrade.serve(limits, move |socket| say_back(socket, outbox, liveness)))
            };
            FrontDoor::with_routes(Arc::clone(&gateway), Router::new().route("/", any(upgrade)))
        })
        .await
}

async fn say_back(socket: Box<WebSocket>, outbox: Outbox, liveness: Liveness) {
    let answers = outbox.clone();
    let on_message = move |message: Received| {
        let _ = match message {
            Received::Text(text) => answers.send(text),
            Received::Binary(bytes) => answers.send_binary(bytes),
            Received::Cut { .. } => return Work::Done(Next::Break(Close::too_large())),
        };
        Work::Done(Next::Continue(()))
    };
    sa_socket::serve_messages(socket, &outbox, liveness, on_message).await;
}
