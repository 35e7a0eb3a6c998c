//! The WebSockets of nodes and participants pass Autobahn's official test suite.
//!
//! The suite's server requires clients that echo every message, which neither library does. Each
//! library has a hidden echo function for this test. It uses the same code as every node and
//! participant for connecting, reading, writing, heartbeats and closing. Only the handling of a
//! message differs.

use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt as _;
use sa_gateway_kit::soon;
use sa_messaging::Client;
use sa_node_sdk::NodeClient;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio_tungstenite::tungstenite::Message;

use crate::websocket::suite::{Suite, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_has_nothing_to_complain_of_in_a_node() {
    let Some(suite) = Suite::find() else { return };
    check(&suite, "node", async |url| {
        // The suite's largest message has 16 MiB. The suite would take a node's own ping for a
        // wrong answer.
        let node = NodeClient::builder()
            .max_request_bytes(16 << 20)
            .heartbeat_interval(Duration::from_hours(1));
        node.gateway_ws_url(url).build().unwrap().echo().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_has_nothing_to_complain_of_in_a_participant() {
    let Some(suite) = Suite::find() else { return };
    check(&suite, "participant", async |url| {
        Client::builder().server(url).token("any").channel("any").echo().await.unwrap();
    })
    .await;
}

/// Runs all cases, one after the other. `echo` connects to an address and ends with the connection.
async fn check(suite: &Suite, agent: &str, echo: impl AsyncFn(String)) {
    let mut server = Server::start(suite).await;
    let cases: usize = server.ask("getCaseCount").await.expect("a number").parse().unwrap();
    for case in 1..=cases {
        echo(format!("{}/runCase?case={case}&agent={agent}", server.url)).await;
    }
    let update = format!("updateReports?agent={agent}");
    server.ask(&update).await;
    // The suite has a timeout of one second, which a busy machine may miss. A real error appears in
    // a second run again.
    for (case, result) in wrong(server.directory.path(), agent) {
        eprintln!("once more: {case}, of which was said {result}");
        echo(format!("{}/runCase?casetuple={case}&agent={agent}", server.url)).await;
    }
    server.ask(&update).await;
    soon(server.process.kill()).await.unwrap();
    suite.judge(server.directory.path(), agent);
}

/// By default the suite's server listens on all addresses, on a fixed port. This script makes it
/// listen on localhost, on a free port that it prints, and end with the test in any case.
const SERVER: &str = "
import os, sys, threading
from autobahntestsuite import fuzzing, wstest
from twisted.internet import reactor

def listen(factory, _):
    port = reactor.listenTCP(0, factory, interface='127.0.0.1').getHost().port
    factory.port = factory.externalPort = port
    os.write(2, '%d\\n' % port)

def end_with_the_test():
    sys.stdin.read()
    os._exit(0)

fuzzing.listenWS = listen
test = threading.Thread(target=end_with_the_test)
test.daemon = True
test.start()
wstest.run()
";

struct Server {
    process: Child,
    url: String,
    directory: TempDir,
    _lives: ChildStdin,
}

impl Server {
    async fn start(suite: &Suite) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let specification = json!({ "url": "ws://127.0.0.1:1" });
        let mut command =
            suite.command(["-c", SERVER], "fuzzingserver", specification, directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let port = soon(lines.next_line()).await.unwrap().expect("it did not start");
        let url = format!("ws://127.0.0.1:{port}");
        // Reads the remaining output, so that the server never blocks on it; the task ends with the
        // server.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{line}");
            }
        });
        let lives = process.stdin.take().unwrap();
        Self { process, url, directory, _lives: lives }
    }

    /// Returns the last text that the server sends before it closes the connection.
    async fn ask(&self, what: &str) -> Option<String> {
        let (mut socket, _) =
            tokio_tungstenite::connect_async(format!("{}/{what}", self.url)).await.unwrap();
        let mut answer = None;
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                answer = Some(text.to_string());
            }
        }
        answer
    }
}
