//! `openapi.json` describes the gateway correctly: schemathesis generates requests from it and checks every response
//! against it.

use std::time::Duration;

use sa_testkit::{Hello, Setup};
use tokio::process::Command;

/// Not tested: WebSockets, endless streams, routes that start programs, and MCP, whose methods OpenAPI cannot describe.
const EXCLUDED: &str = r"/ws$|/events$|^/v1/upstream$|^/mcp$";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_undescribed_response() {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(3).unwrap().join("schemathesis/venv/bin/schemathesis");
    assert!(program.exists(), "{} is missing; run: cargo xtask test", program.display());
    let gateway = Setup::new().start().await;
    let _node = Hello::new("laptop").tool("demo.echo").connect(&gateway).await.echo();
    let run = Command::new(program)
        .arg("run")
        .arg(format!("{}/openapi.json", gateway.url))
        .args(["--header", &format!("Authorization: Bearer {}", gateway.operator)])
        .args(["--exclude-path-regex", EXCLUDED])
        // The same requests in each run, few enough for a minute.
        .args(["--generation-deterministic", "--max-examples", "5", "--phases", "coverage,fuzzing"])
        .args(["--checks", CHECKS, "--request-timeout", "60", "--no-color"])
        .current_dir(gateway.dir.path())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(600), run).await.expect("it ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    gateway.stop().await;
}

/// All checks but `positive_data_acceptance`: some rules concern several fields, or depend on the gateway's state.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance,ignored_auth";
