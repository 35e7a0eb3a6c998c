//! Each token may call each plugin a limited number of times per second, even with concurrent
//! calls, and tokens do not affect each other.

use std::time::Instant;

use futures_util::future::join_all;
use sa_testkit::plugins::{add, gateway, payload};
use sa_testkit::{Agent, PluginServer, Setup};
use serde_json::json;

use crate::gateway::Serve as _;

const PER_SECOND: usize = 20;
const AT_ONCE: usize = 200;

/// Makes concurrent calls. Returns how many passed, and the maximum that the elapsed time allows.
async fn flood(agent: &Agent, plugin: &str) -> (usize, usize) {
    let started = Instant::now();
    let replies = join_all(
        (0..AT_ONCE)
            .map(|_| async { gateway(agent, &payload(plugin, json!({ "city": "x" }))).await }),
    )
    .await;
    let seconds = started.elapsed().as_secs_f64();
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!((reply.status, &reply.body["errorType"]), (429, &json!(429)), "{}", reply.text);
        assert_eq!(reply.headers["retry-after"], "1");
        assert!(reply.text.contains("20 calls"), "{}", reply.text);
    }
    let passed = replies.iter().filter(|reply| reply.status == 200).count();
    // One more for each call that the elapsed time has refilled.
    (passed, PER_SECOND + (seconds * PER_SECOND as f64).ceil() as usize)
}

#[tokio::test]
async fn the_limit_is_exact_for_each_token_and_plugin() {
    let server = PluginServer::echo().await;
    let more = format!("{}calls_per_second = {PER_SECOND}\nmax_running = 1000\n", server.allowed());
    let at = Setup::new().config(&more).serve().await;
    let operator = at.operator();
    for id in ["one", "two"] {
        add(&operator, &server.manifest(id, json!({}))).await;
    }
    let (ann, ben) = (at.new_agent("ann").await, at.new_agent("ben").await);
    let floods = join_all([flood(&ann, "one"), flood(&ann, "two"), flood(&ben, "one")]).await;
    for (passed, most) in &floods {
        assert!((PER_SECOND..=*most).contains(passed), "{floods:?}");
    }
    let passed: usize = floods.iter().map(|(passed, _)| passed).sum();
    assert_eq!(server.asked().len(), passed, "what was refused has not reached the server");
}
