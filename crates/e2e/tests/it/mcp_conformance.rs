//! The official conformance suite finds nothing to complain of, in either era, but for what is written down with a reason.
//!
//! `cargo xtask test` installs the suite. It cannot log in, so it is let in through a small door of the test's own that
//! adds the token. The tools that it expects are a provider inside the gateway: some of them ask their client, which a node
//! cannot.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_testkit::{Gateway, Setup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::mcp_tools;

/// Where `cargo xtask test` puts other people's programs.
pub(crate) fn peers() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let peers = target.join("mcp-peers");
    assert!(peers.join("node_modules").is_dir(), "{} is missing; run: cargo xtask test", peers.display());
    peers
}

pub(crate) fn node_path(peers: &Path) -> String {
    format!("{}:{}", peers.join("node_modules/node/bin").display(), std::env::var("PATH").unwrap())
}

/// Passes each connection on with the operator's token, and with the gateway's own port where the client named ours.
pub(crate) async fn door(gateway: &Gateway) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (address, token) = (gateway.address().to_owned(), gateway.operator.clone());
    let (ours, theirs) = (format!(":{port}"), format!(":{}", gateway.port()));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (address, token, ours, theirs) = (address.clone(), token.clone(), ours.clone(), theirs.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = client.read_u8().await else { return };
                    head.push(byte);
                }
                let head = String::from_utf8_lossy(&head).replace(&ours, &theirs);
                let (first, rest) = head.split_once("\r\n").unwrap();
                // One request a connection, so that each has its token.
                let rest: String = rest
                    .split_inclusive("\r\n")
                    .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
                    .collect();
                let head = format!("{first}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n{rest}");
                let Ok(mut gateway) = TcpStream::connect(address).await else { return };
                if gateway.write_all(head.as_bytes()).await.is_ok() {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
                }
            });
        }
    });
    format!("http://127.0.0.1:{port}/mcp")
}

async fn check(revision: &str) {
    let peers = peers();
    let gateway = Setup::new().start().await;
    let _tools = mcp_tools::attach_all(&gateway);
    let url = door(&gateway).await;
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mcp-expected-failures-{revision}.yaml"));
    let output = Command::new(peers.join("node_modules/node/bin/node"))
        .arg(peers.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &url, "--requirements", revision, "--expected-failures"])
        .arg(expected)
        // Where to look when something fails.
        .arg("--output-dir")
        .arg(peers.join("results").join(revision))
        .env("PATH", node_path(&peers))
        .current_dir(gateway.dir.path())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2025_11_25_are_served_as_the_suite_wants() {
    check("2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2026_07_28_are_served_as_the_suite_wants() {
    check("2026-07-28").await;
}
