//! The command line lists the hosts that meet all requirements.

use sa_gateway_kit::{Hello, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

fn server() -> Hello {
    let tool = |name: &str, capability: &str| json!({ "name": name, "capabilities": [capability] });
    Hello::new("server")
        .describe(tool("Bash", "shell.exec"))
        .describe(tool("Read", "filesystem.read"))
        .with("host", json!({ "role": "specialized", "os": "linux", "env": ["HOME"] }))
}

#[tokio::test]
async fn the_command_line_asks_as_well() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let empty = gateway.cli(&["eligibility"]).run().await;
    assert!(empty.assert_code(5).stderr.contains("no host is connected"), "{}", empty.stderr);
    let server = server().connect(&gateway).await;
    let args = [
        "eligibility",
        "--capability",
        "shell.exec",
        "--capability",
        "x.y",
        "--env",
        "HOME",
        "--os",
        "darwin",
        "--os",
        "linux",
    ];
    let shown = gateway.cli(&args).run().await;
    shown.assert_code(5);
    assert!(
        shown.stdout.contains("not eligible") && shown.stdout.contains("capabilities x.y"),
        "{}",
        shown.stdout
    );
    let answer = gateway.cli(&["eligibility", "--env", "HOME", "--json"]).run().await.json();
    assert_eq!(answer["eligible"], json!([{ "node": "server", "primary": false }]));
    gateway.cli(&["eligibility", "--env", "HOME"]).run().await.assert_code(0);
    gateway.cli(&["eligibility", "--bin", "a/b"]).run().await.assert_code(2);
    drop(server);
    let away = sa_gateway_kit::eventually("the host gone", || async {
        let away = gateway.cli(&["eligibility", "--bin", "git", "--env", "NOPE"]).run().await;
        away.stdout.contains("offline").then_some(away)
    })
    .await;
    // The host was never asked about programs, but its own hello is known.
    assert!(
        away.stdout.contains("env NOPE; programs unknown: the node is not connected"),
        "{}",
        away.stdout
    );
    gateway.stop().await;
}
