//! Only the tool with a too deeply nested schema is unusable, and the operator learns its name,
//! over every transport.

use sa_testkit::Gateway;
use sa_testkit::Setup;
use sa_testkit::upstream::until;
use sa_testkit::upstream::{Says, WAYS, Way};
use serde_json::json;

use crate::serve::Serve as _;

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
    let (config, _dir) = with_deep(110).config(way).await;
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    let reply = gateway.operator().call("test__deep", json!({})).await;
    let told = reply.assert_problem(502, "failed").detail();
    assert!(told.contains("input schema") && told.contains("deeper than 100 levels"), "{told}");
    check_others(&gateway).await;
}

/// Checks a schema that cannot be parsed: the tool is left out, and the server's state reports
/// that.
async fn check_unreadable(way: Way, levels: usize) {
    let (config, _dir) = with_deep(levels).config(way).await;
    let gateway = Setup::new().config(&config).serve().await;
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
