//! Autobahn's test suite, the official one, finds nothing to complain of in how the gateway speaks WebSocket.
//!
//! The suite wants a server that sends back what it is sent, which none of the gateway's protocols does. So a gateway is
//! started whose front door has one other route behind it: everything from the accepted socket to `sa_socket`, with its
//! limits, its outbox and its closing, is what nodes, agents and participants connect to, and only what is done with a
//! message is the test's. `cargo xtask test` installs the suite.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::routing::any;
use sa_socket::{Close, Liveness, Next, Outbox, Received, SocketLimits, Work};
use sa_testkit::{Gateway, Setup, count};
use serde_json::{Value, json};
use switchboard::http::FrontDoor;
use tokio::process::Command;

/// What an outcome may be. The gateway offers no compression, whose cases are then not run by the suite; and what breaks
/// off a text in the middle of a frame for its encoding may do so at the frame's end, which it calls not strict.
const FINE: [&str; 4] = ["OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"];

/// After a clean close it is the server that should hang up, and on a busy machine the suite, which waits for half a second,
/// may be first.
const IMPATIENT: &str = "FAILED BY CLIENT";

/// All that there is to be said of a frame: framing, pings, reserved bits, opcodes, fragments, UTF-8, closing, the rest.
const ORDINARY: [&str; 8] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];

/// In these groups are messages of up to 16 MiB, in ever smaller fragments, and compression.
const LONG: [&str; 3] = ["9.*", "12.*", "13.*"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_has_nothing_to_complain_of() {
    let long = count("SWITCHBOARD_AUTOBAHN_ALL", 0) > 0;
    let Some(suite) = suite() else {
        assert!(!long, "Autobahn's test suite is not installed");
        return eprintln!("left out, because Autobahn's test suite is not installed: run cargo xtask test to hear why");
    };
    let gateway = echo().await;
    let cases: Vec<&str> = ORDINARY.into_iter().chain(LONG.into_iter().filter(|_| long)).collect();
    let results = run(&gateway, &suite, &cases).await;
    let mut outcomes = BTreeMap::<&str, usize>::new();
    let mut wrong = Vec::new();
    for (case, result) in &results {
        for kind in ["behavior", "behaviorClose"] {
            let outcome = result[kind].as_str().unwrap();
            *outcomes.entry(outcome).or_default() += 1;
            if !FINE.contains(&outcome) && (kind, outcome) != ("behaviorClose", IMPATIENT) {
                wrong.push(format!("{case}: {kind} {outcome}"));
            }
        }
    }
    eprintln!("{} cases: {outcomes:?}", results.len());
    assert!(results.len() > if long { 500 } else { 200 }, "only {} cases were run", results.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    gateway.stop().await;
}

/// A gateway that says what it hears to whoever connects to `/`, where no token is asked for.
async fn echo() -> Gateway {
    Setup::new()
        .start_behind(|gateway| {
            let limits = gateway.config.settings.limits.clone();
            let nodes = &gateway.config.settings.nodes;
            let millis = std::time::Duration::from_millis;
            let liveness =
                Liveness { ping_every: millis(nodes.ping_interval_ms), dead_after: millis(nodes.dead_after_ms) };
            let upgrade = move |upgrade: WebSocketUpgrade| {
                let (limits, outbox) = (
                    SocketLimits { max_message_bytes: limits.max_frame_bytes },
                    Outbox::new(limits.max_outbox_bytes, Close::new(4429, "the reader is too slow")),
                );
                std::future::ready(limits.apply(upgrade).on_upgrade(move |socket| say_back(socket, outbox, liveness)))
            };
            FrontDoor::with_routes(Arc::clone(&gateway), Router::new().route("/", any(upgrade)))
        })
        .await
}

async fn say_back(socket: WebSocket, outbox: Outbox, liveness: Liveness) {
    let answers = outbox.clone();
    let on_message = move |message: Received| {
        let _ = match message {
            Received::Text(text) => answers.send(text),
            Received::Binary(bytes) => answers.send_binary(bytes),
        };
        Work::Done(Next::Continue(()))
    };
    sa_socket::serve_messages(Box::new(socket), &outbox, liveness, on_message).await;
}

/// Where `cargo xtask test` puts the suite, if it can be had.
fn suite() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let suite = program.ancestors().nth(3).unwrap().join("autobahn");
    suite.join("installed").is_file().then_some(suite)
}

/// What came of each case.
async fn run(gateway: &Gateway, suite: &Path, cases: &[&str]) -> BTreeMap<String, Value> {
    let reports = gateway.dir.path().join("reports");
    let specification = gateway.dir.path().join("suite.json");
    let server =
        json!({ "agent": "gateway", "url": gateway.url.replacen("http", "ws", 1), "options": { "version": 18 } });
    let wanted = json!({
        "outdir": reports, "servers": [server], "cases": cases, "exclude-cases": [], "exclude-agent-cases": {},
        "options": { "failByDrop": false },
    });
    std::fs::write(&specification, wanted.to_string()).unwrap();
    let output = Command::new(suite.join("python/usr/bin/python2.7"))
        .args(["-W", "ignore", "-m", "autobahntestsuite.wstest", "--mode", "fuzzingclient", "--spec"])
        .arg(&specification)
        .env("LD_LIBRARY_PATH", libraries(suite))
        .env("PYTHONUSERBASE", suite.join("packages"))
        .stdin(Stdio::null())
        .current_dir(gateway.dir.path())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let index = std::fs::read(reports.join("index.json")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let mut index: Value = serde_json::from_slice(&index).unwrap();
    serde_json::from_value(index["gateway"].take()).unwrap()
}

/// The interpreter's own, which the system has no more.
fn libraries(suite: &Path) -> PathBuf {
    let mut found = std::fs::read_dir(suite.join("python/usr/lib")).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.to_string_lossy().ends_with("-linux-gnu")).expect("libraries")
}
