//! The official conformance suite passes with every revision, both for the gateway itself and for a
//! server behind it. The server scores the same as without the gateway.
//!
//! `cargo xtask test` installs the suite. It cannot log in, so it connects through a small proxy in
//! this test that adds the token. It calls tools and prompts by the names that their server uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Gateway, Setup};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// Returns the directory where `cargo xtask test` installs third-party programs.
pub(crate) fn peers() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let peers = target.join("mcp-peers");
    assert!(
        peers.join("node_modules").is_dir(),
        "{} is missing; run: cargo xtask test",
        peers.display()
    );
    peers
}

pub(crate) fn node_path(peers: &Path) -> String {
    format!("{}:{}", peers.join("node_modules/node/bin").display(), std::env::var("PATH").unwrap())
}

/// Forwards each connection with the operator's token, and replaces the proxy's port with the
/// gateway's.
pub(crate) async fn door(gateway: &Gateway) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (address, token) = (gateway.address().to_owned(), gateway.operator.clone());
    let (ours, theirs) = (format!(":{port}"), format!(":{}", gateway.port()));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (address, token, ours, theirs) =
                (address.clone(), token.clone(), ours.clone(), theirs.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = client.read_u8().await else { return };
                    head.push(byte);
                }
                let head = String::from_utf8_lossy(&head).replace(&ours, &theirs);
                let (first, rest) = head.split_once("\r\n").unwrap();
                // One request per connection, so that each one gets the token.
                let rest: String = rest
                    .split_inclusive("\r\n")
                    .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
                    .collect();
                let head = format!(
                    "{first}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n{rest}"
                );
                let Ok(mut gateway) = TcpStream::connect(address).await else { return };
                if gateway.write_all(head.as_bytes()).await.is_ok() {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
                }
            });
        }
    });
    format!("http://127.0.0.1:{port}/mcp")
}

/// Starts the server without a gateway, and returns its address.
pub(crate) async fn conformance_server() -> (Child, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_e2e-conformance-server"));
    let mut server = server.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    (server, url)
}

/// Starts a gateway with that server as an upstream.
pub(crate) async fn gateway_before(url: &str) -> Gateway {
    let config = format!("[mcp]\ntask_after_ms = 150\n[upstream.conformance]\nurl = \"{url}\"\n");
    let gateway = Setup::new().config(&config).start().await;
    until(&gateway, "conformance", "ready").await;
    gateway
}

/// The result of each check of each scenario. A check that runs several times counts as its worst
/// result.
type Scores = BTreeMap<(String, String), &'static str>;

/// From the best to the worst.
const STATUS: [&str; 5] = ["SUCCESS", "INFO", "SKIPPED", "WARNING", "FAILURE"];

/// Returns the rank of a status. `INFO` counts as good as `SUCCESS`, because it is no complaint.
fn rank(status: &str) -> usize {
    STATUS.iter().position(|known| *known == status).unwrap().max(1)
}

async fn run(url: &str, what: [&str; 2], name: &str) -> Scores {
    let peers = peers();
    // The directory with the details of failures.
    let results = peers.join("results").join(what[1]).join(name);
    let _ = std::fs::remove_dir_all(&results);
    let output = Command::new(peers.join("node_modules/node/bin/node"))
        .arg(peers.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", url])
        .args(what)
        .arg("--output-dir")
        .arg(&results)
        .env("PATH", node_path(&peers))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let mut scores = Scores::new();
    let said = String::from_utf8_lossy(&output.stdout);
    for scenario in std::fs::read_dir(&results).unwrap_or_else(|error| panic!("{error}: {said}")) {
        let scenario = scenario.unwrap();
        let checks = std::fs::read(scenario.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        let directory = scenario.file_name().into_string().unwrap();
        // `server-SCENARIO-TIME`
        let scenario =
            &directory["server-".len()..directory.len() - "-2026-01-01T00-00-00-000Z".len()];
        for check in checks {
            let status = STATUS.iter().position(|status| check["status"] == *status).unwrap();
            let key = (scenario.to_owned(), check["id"].as_str().unwrap().to_owned());
            let before =
                scores.get(&key).and_then(|status| STATUS.iter().position(|known| known == status));
            scores.insert(key, STATUS[status.max(before.unwrap_or(0))]);
        }
    }
    assert!(scores.len() > 20, "{said}");
    scores
}

/// Checks that the suite runs but does not count, with the reason why they cannot pass here.
const BEYOND: [(&str, &str); 3] = [
    (
        "json-schema-2020-12",
        "looks for a tool in the list by its server's name; the gateway lists conformance__ and that",
    ),
    (
        "server-sse-polling",
        "a tool that closes the stream of its own call; only the gateway itself could",
    ),
    (
        "tasks-required-task-error",
        "a tool that can only run as a task; the gateway waits for any, so it has none",
    ),
];

async fn check(what: [&str; 2]) {
    let (_server, url) = conformance_server().await;
    let alone = run(&url, what, "alone").await;
    let gateway = gateway_before(&url).await;
    let behind = run(&door(&gateway).await, what, "behind").await;
    let counts =
        |(scenario, _): &&(String, String)| BEYOND.iter().all(|(beyond, _)| scenario != beyond);
    for (name, scores) in [("alone", &alone), ("behind the gateway", &behind)] {
        let failed =
            scores.iter().filter(|(key, status)| counts(key) && **status == "FAILURE").count();
        let passed = scores.iter().filter(|(key, _)| counts(key)).count() - failed;
        eprintln!("{what:?} {name}: {passed} checks passed, {failed} failed");
    }
    let failed: Vec<_> =
        behind.iter().filter(|(key, status)| counts(key) && **status == "FAILURE").collect();
    assert!(failed.is_empty(), "{failed:?}");
    let worse = alone.iter().filter(|(key, status)| counts(key) && **status != "FAILURE");
    let worse = worse
        .filter(|(key, status)| behind.get(*key).is_none_or(|behind| rank(behind) > rank(status)));
    let worse: Vec<_> = worse.map(|(key, status)| (key, status, behind.get(key))).collect();
    assert!(worse.is_empty(), "worse than without the gateway: {worse:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2025_06_18() {
    check(["--spec-version", "2025-06-18"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2025_11_25() {
    check(["--requirements", "2025-11-25"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2026_07_28() {
    check(["--requirements", "2026-07-28"]).await;
}
