//! A tool of an upstream server whose schema is nested too deeply is the only one that cannot be used, and the operator is told
//! which it is, over every way to the server.

use sa_testkit::{Gateway, Setup};
use serde_json::json;

use crate::SWITCHBOARD;
use crate::upstream::until;
use crate::upstream_said::{Says, WAYS, Way};

/// One that is fine, and one with a schema of so many levels.
fn with_deep(levels: usize) -> Says {
    // `properties` of `properties`: each level is one that a validator goes down as well.
    let deep = format!("{}{{}}{}", "{\"properties\":".repeat(levels - 1), "}".repeat(levels - 1));
    Says::tools(&format!(r#",{{"name":"deep","inputSchema":{deep}}},{{"name":"last","inputSchema":{{}}}}"#))
}

async fn check_others(gateway: &Gateway) {
    for tool in ["test__fine", "test__last"] {
        assert_eq!(gateway.operator().call(tool, json!({})).await.result()["content"][0]["text"], "hello", "{tool}");
    }
}

/// One that can be read: its tool is listed, and says why it cannot be called.
async fn check_readable(way: Way) {
    let (gateway, _dir) = with_deep(110).start(way).await;
    until(&gateway, "test", "ready").await;
    let reply = gateway.operator().call("test__deep", json!({})).await;
    let told = reply.assert_problem(502, "failed").detail();
    assert!(told.contains("input schema") && told.contains("deeper than 100 levels"), "{told}");
    check_others(&gateway).await;
}

/// One that cannot: it is left out, and the server's state says so.
async fn check_unreadable(way: Way, levels: usize) {
    let (gateway, _dir) = with_deep(levels).start(way).await;
    let server = until(&gateway, "test", "ready").await;
    assert_eq!(server["tools"], 2, "{server}");
    assert_eq!(server["left_out"][0]["tool"], "deep", "{server}");
    assert!(server["left_out"][0]["why"].as_str().unwrap().contains("levels"), "{server}");
    gateway.operator().call("test__deep", json!({})).await.assert_problem(404, "not_found");
    check_others(&gateway).await;
}

#[tokio::test]
async fn a_schema_that_can_be_read() {
    for way in WAYS {
        check_readable(way).await;
    }
}

#[tokio::test]
async fn a_schema_that_cannot_be_read() {
    for way in WAYS {
        check_unreadable(way, 130).await;
    }
}

#[tokio::test]
async fn a_schema_without_bounds() {
    for way in WAYS {
        check_unreadable(way, 100_000).await;
    }
}

#[tokio::test]
async fn the_command_line_names_it() {
    let config = with_deep(1_000).serve(false).await;
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    until(&gateway, "test", "ready").await;
    for args in [&["upstream", "list"][..], &["upstream", "show", "test"], &["doctor"]] {
        let shown = gateway.cli(args).run().await;
        assert!(shown.stdout.contains("left out") && shown.stdout.contains("deep"), "{args:?}: {}", shown.stdout);
    }
    gateway.stop().await;
}
