//! `openapi.json` describes the gateway correctly: schemathesis generates requests from it and
//! checks every response against it.

use std::time::Duration;

use sa_gateway_kit::{Hello, Setup};
use serde_json::json;
use tokio::process::Command;

/// The routes that are not tested:
/// - The streams of events are endless, so their responses have no end to check.
/// - `/v1/channels/ws` checks its parameters after the upgrade, and no request here upgrades.
/// - `/mcp`: its methods are JSON-RPC, which OpenAPI cannot describe.
const EXCLUDED_PATHS: &str = r"/events$|^/v1/channels/ws$|^/mcp$";
/// The operations that are not tested with the operator's token. Another token gets a refusal,
/// which is tested.
/// - `upstream_add` starts any program on the machine.
/// - `tokens_revoke` would revoke the token of the test, because schemathesis uses ids from other
///   responses. All further responses would be 401.
const EXCLUDED_FOR_OPERATORS: [&str; 2] = ["upstream_add", "tokens_revoke"];

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_undescribed_response_to_an_operator() {
    check(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_undescribed_response_to_an_agent() {
    check(Some("agent")).await;
}

/// Runs schemathesis with a token of this role, or with the operator's token.
async fn check(role: Option<&str>) {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(3).unwrap().join("schemathesis/venv/bin/schemathesis");
    assert!(program.exists(), "{} is missing; run: cargo xtask test", program.display());
    let gateway = Setup::new().start().await;
    let _node = Hello::new("laptop").tool("demo.echo").connect(&gateway).await.echo();
    let token = match role {
        Some(role) => gateway.token(json!({ "name": "someone", "role": role })).await.1,
        None => gateway.operator.clone(),
    };
    let mut command = Command::new(program);
    command.arg("run");
    if role.is_none() {
        for operation in EXCLUDED_FOR_OPERATORS {
            command.args(["--exclude-operation-id", operation]);
        }
    }
    let run = command
        .arg(format!("{}/openapi.json", gateway.url))
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--exclude-path-regex", EXCLUDED_PATHS])
        // The same requests in each run, few enough for a minute.
        .args(["--generation-deterministic", "--max-examples", "5", "--phases", "coverage,fuzzing"])
        .args(["--checks", CHECKS, "--request-timeout", "60", "--no-color"])
        .current_dir(gateway.dir.path())
        .kill_on_drop(true)
        .output();
    let output =
        tokio::time::timeout(Duration::from_secs(600), run).await.expect("it ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let is_refused = text.contains("Authentication failed");
    assert_eq!(is_refused, role.is_some(), "an operator may use every operation: {text}");
    gateway.stop().await;
}

/// All checks except these:
/// - `positive_data_acceptance`: some rules concern several fields or depend on the gateway's
///   state, so a request that fits the schema may be refused.
/// - `missing_required_header`: no operation has a required header besides the token's, which
///   `ignored_auth` checks.
/// - `use_after_free` and `ensure_resource_availability`: they need OpenAPI links between
///   operations, which the document does not have.
/// - `max_response_time`: a test has no wall-clock assertions.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance,ignored_auth";
