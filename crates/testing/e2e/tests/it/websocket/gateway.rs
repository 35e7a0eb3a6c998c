//! The gateway's WebSocket passes Autobahn's official test suite.
//!
//! The suite requires a server that echoes every message, which none of the gateway's protocols
//! does. So this test starts a gateway with an additional route behind its auth middleware.
//! Everything from the accepted socket to `sa_socket`, with limits, outbox and closing, is the code
//! for nodes, agents and participants. Only the echo belongs to the test.

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use sa_gateway::http::{HttpService, RouteTable};
use sa_gateway_kit::{Gateway, Setup};
use sa_socket::{Close, Liveness, Next, Outbox, Received, SocketLimits, Upgrade, WebSocket, Work};
use serde_json::json;

use crate::websocket::suite::Suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_has_nothing_to_complain_of() {
    let Some(suite) = Suite::find() else { return };
    let gateway = echo().await;
    let url = gateway.url.replacen("http", "ws", 1);
    let specification =
        json!({ "servers": [{ "agent": "gateway", "url": url, "options": { "version": 18 } }] });
    let program = ["-m", "autobahntestsuite.wstest"];
    let output = suite
        .command(program, "fuzzingclient", specification, gateway.dir.path())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    suite.judge(gateway.dir.path(), "gateway");
    gateway.stop().await;
}

/// Starts a gateway that echoes every message on `/`, without a token.
async fn echo() -> Gateway {
    Setup::new()
        .start_behind(|gateway| {
            let limits = gateway.config.settings.limits.clone();
            let nodes = &gateway.config.settings.nodes;
            let millis = std::time::Duration::from_millis;
            let liveness = Liveness {
                ping_every: millis(nodes.ping_interval_ms),
                dead_after: millis(nodes.dead_after_ms),
            };
            let upgrade = move |upgrade: Upgrade| {
                let (limits, outbox) = (
                    SocketLimits {
                        max_message_bytes: limits.max_frame_bytes,
                        cuts: true,
                        budget: None,
                    },
                    Outbox::new(
                        limits.max_outbox_bytes,
                        Close::new(4429, "the reader is too slow"),
                    ),
                );
                std::future::ready(
                    upgrade.serve(limits, move |socket| say_back(socket, outbox, liveness)),
                )
            };
            let table = RouteTable::new([], Router::new().route("/", any(upgrade)));
            HttpService::with_table(Arc::clone(&gateway), table)
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
