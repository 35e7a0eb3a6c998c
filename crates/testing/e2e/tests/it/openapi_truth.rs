//! `openapi.json` describes the gateway correctly: schemathesis generates requests from it and
//! checks every response against it.

use std::time::Duration;

use sa_testkit::{Hello, Setup};
use serde_json::json;
use tokio::process::Command;

/// Not tested: WebSockets, endless streams, and MCP, whose methods OpenAPI cannot describe.
const EXCLUDED_PATHS: &str = r"/ws$|/events$|^/mcp$";
/// Not tested either: this operation starts programs.
const EXCLUDED_OPERATION: &str = "upstream_add";

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
    let run = Command::new(program)
        .arg("run")
        .arg(format!("{}/openapi.json", gateway.url))
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--exclude-path-regex", EXCLUDED_PATHS])
        .args(["--exclude-operation-id", EXCLUDED_OPERATION])
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
    gateway.stop().await;
}

/// All checks except `positive_data_acceptance`, because some rules concern several fields or
/// depend on the gateway's state.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance,ignored_auth";
