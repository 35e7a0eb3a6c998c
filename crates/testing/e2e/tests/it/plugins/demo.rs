//! The example plugins of `up` exist exactly as long as it runs. They end with it in any case,
//! leave nothing in its store, and are skipped on a machine without Node.js.

use std::path::Path;

use rustix::process::{Pid, Signal, test_kill_process};
use sa_gateway_kit::{Cli, Started, eventually};
use serde_json::Value;

use crate::SWITCHBOARD;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");

fn up(data: &Path) -> Cli {
    let data = data.to_str().unwrap();
    Cli::new(SWITCHBOARD).args(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data,
        "--examples",
        EXAMPLES,
    ])
}

async fn plugins(data: &Path) -> Vec<Value> {
    let list = Cli::new(SWITCHBOARD)
        .args(&["--data-dir", data.to_str().unwrap(), "plugin", "list", "--json"])
        .run()
        .await;
    list.assert_code(0).json()["plugins"].as_array().unwrap().clone()
}

/// Returns the Node.js process that the gateway has started.
fn servers(gateway: &Started) -> Pid {
    // The state and the parent follow the program's name, which may contain any characters.
    let parent = |id: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some(stat.rsplit_once(") ")?.1.split(' ').nth(1)?.to_owned())
    };
    let owner = gateway.pid().to_string();
    let found = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        let supervisor = parent(&id.to_string())?;
        (parent(&supervisor)? == owner && command.contains("demo.mjs")).then_some(id)
    });
    Pid::from_raw(found.last().expect("the servers run")).unwrap()
}

async fn gone(servers: Pid) {
    eventually("the servers to end", || async {
        test_kill_process(servers).is_err().then_some(())
    })
    .await;
}

#[tokio::test]
async fn they_are_added_for_the_demo_alone() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = up(dir.path()).start();
    let said = gateway.says("Press Ctrl-C to stop").await;
    assert!(said.contains("plugins    Checklist, Sun times, World clock"), "{said}");
    assert_eq!(plugins(dir.path()).await.len(), 3);
    let data = dir.path().to_str().unwrap();
    let call = Cli::new(SWITCHBOARD).args(&[
        "--data-dir",
        data,
        "call",
        "sun-times__getSunTimes",
        "latitude=60",
        "longitude=10",
    ]);
    let call = call.run().await;
    assert!(call.assert_code(0).stdout.contains("daylightMinutes"), "{}", call.stdout);
    let cli = |args: &[&str]| Cli::new(SWITCHBOARD).args(&["--data-dir", data]).args(args);
    crate::cli::hints::check_examples(cli).await;
    let servers = servers(&gateway);
    gateway.signal(Signal::TERM);
    gateway.end().await.assert_code(0);
    gone(servers).await;

    let later = Cli::new(SWITCHBOARD)
        .args(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data])
        .start();
    later.says("listening on").await;
    assert!(plugins(dir.path()).await.is_empty());
    later.signal(Signal::TERM);
    later.end().await.assert_code(0);
}

#[tokio::test]
async fn they_do_not_outlive_a_gateway_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = up(dir.path()).start();
    gateway.says("Press Ctrl-C to stop").await;
    let before = plugins(dir.path()).await;
    let servers = servers(&gateway);
    gateway.signal(Signal::KILL);
    gateway.end().await;
    gone(servers).await;

    // Old entries in the store are replaced by the running plugins.
    let gateway = up(dir.path()).start();
    gateway.says("Checklist, Sun times, World clock").await;
    let after = plugins(dir.path()).await;
    assert_eq!(after.len(), 3);
    assert_ne!(after[0]["source"], before[0]["source"], "{after:?}");
    gateway.signal(Signal::TERM);
    gateway.end().await.assert_code(0);
}

#[tokio::test]
async fn without_node_js_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = up(dir.path()).env("PATH", dir.path().to_str().unwrap()).start();
    let said = gateway.says("Press Ctrl-C to stop").await;
    assert!(said.contains("left out: Node.js is not installed"), "{said}");
    assert!(plugins(dir.path()).await.is_empty());
    gateway.signal(Signal::TERM);
    gateway.end().await.assert_code(0);
}
