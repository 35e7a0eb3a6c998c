//! Only the tool with a too deeply nested schema is unusable, and the operator learns its name,
//! over every transport.

use sa_testkit::{Gateway, Setup};
use serde_json::json;

use crate::SWITCHBOARD;
use crate::upstream::until;
use crate::upstream_said::{Says, WAYS, Way};

/// Returns a server with a valid tool, and one with a schema of this many levels.
fn with_deep(levels: usize) -> Says {
    // Nested `properties`: each level is one that a validator descends into.
    let deep = format!("{}{{}}{}", "{\"properties\":".repeat(levels - 1), "}".repeat(levels - 1));
    Says::tools(&format!(
        r#",{{"name":"deep","inputSchema":{deep}}},{{"name":"last","inputSchema":{{}}}}"#
    ))
}

async fn check_others(gateway: &Gateway) {
    for tool in ["test__fine", "test__last"] {
        assert_eq!(
            gateway.operator().call(tool, json!({})).await.result()["content"][0]["text"],
            "hello",
            "{tool}"
        );
    }
}

/// Checks a schema that can be parsed: its tool is listed, and its calls report the error.
async fn check_readable(way: Way) {
    let (gateway, _dir) = with_deep(110).start(way).await;
    until(&gateway, "test", "ready").await;
    let reply = gateway.operator().call("test__deep", json!({})).await;
    let told = reply.assert_problem(502, "failed").detail();
    assert!(told.contains("input schema") && told.contains("deeper than 100 levels"), "{told}");
    check_others(&gateway).await;
}

/// Checks a schema that cannot be parsed: the tool is left out, and the server's state reports
/// that.
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
        assert!(
            shown.stdout.contains("left out") && shown.stdout.contains("deep"),
            "{args:?}: {}",
            shown.stdout
        );
    }
    gateway.stop().await;
}
