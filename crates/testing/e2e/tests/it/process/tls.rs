//! With a certificate everything is encrypted: https for agents and commands, wss for nodes.

use std::path::Path;

use sa_gateway_kit::{Cli, Gateway, Setup, TIMEOUT, soon};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::SWITCHBOARD;

/// Creates a self-signed certificate for this machine.
pub(crate) async fn certificate(dir: &Path) -> (String, String) {
    signed_by_itself(dir, "CA:FALSE").await
}

async fn signed_by_itself(dir: &Path, constraint: &str) -> (String, String) {
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let (cert, key) = (cert.to_str().unwrap().to_owned(), key.to_str().unwrap().to_owned());
    let made = Cli::new("openssl")
        .args(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(&[
            "-subj",
            "/CN=a gateway under test",
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ])
        .args(&[
            "-addext",
            &format!("basicConstraints=critical,{constraint}"),
            "-keyout",
            &key,
            "-out",
            &cert,
        ])
        .run()
        .await;
    made.assert_code(0);
    (cert, key)
}

async fn start(dir: &Path) -> (Gateway, String) {
    let (cert, key) = certificate(dir).await;
    let gateway =
        Setup::new().args(&["--tls-cert", &cert, "--tls-key", &key]).spawn(SWITCHBOARD).await;
    assert!(gateway.url.starts_with("https://127.0.0.1:"), "{}", gateway.url);
    (gateway, cert)
}

#[tokio::test]
async fn agents_and_commands_speak_https() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, cert) = start(dir.path()).await;
    let ended = gateway.cli(&["status", "--ca", &cert]).run().await;
    ended.assert_code(0);
    assert!(ended.stdout.contains("https://127.0.0.1"), "{}", ended.stdout);
    // A certificate that cannot be verified is not trusted.
    let ended = gateway.cli(&["status"]).run().await;
    ended.assert_code(3);
    assert!(ended.stderr.contains("certificate is not signed by"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--ca FILE"), "{}", ended.stderr);
    // A plain-text client is informed that the server uses TLS.
    let plain = gateway.url.replace("https", "http");
    let ended = gateway.cli(&["status", "--url", &plain]).run().await;
    assert!(
        ended.assert_code(3).stderr.contains("https:// instead of http://"),
        "{}",
        ended.stderr
    );
    gateway.stop().await;
    let plain = Setup::new().spawn(SWITCHBOARD).await;
    let encrypted = plain.url.replace("http", "https");
    let ended = plain.cli(&["status", "--url", &encrypted]).run().await;
    assert!(
        ended.assert_code(3).stderr.contains("http:// instead of https://"),
        "{}",
        ended.stderr
    );
    plain.stop().await;
}

/// The default certificate type of `openssl req -x509`.
#[tokio::test]
async fn an_authoritys_own_certificate_is_no_servers() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = signed_by_itself(dir.path(), "CA:TRUE").await;
    let gateway =
        Setup::new().args(&["--tls-cert", &cert, "--tls-key", &key]).spawn(SWITCHBOARD).await;
    let ended = gateway.cli(&["status", "--ca", &cert]).run().await;
    assert!(ended.assert_code(3).stderr.contains("basicConstraints=CA:FALSE"), "{}", ended.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn the_demo_is_there_with_a_certificate_too() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(dir.path()).await;
    let gateway = Setup::new()
        .args(&["--tls-cert", &cert, "--tls-key", &key])
        .demo()
        .spawn(SWITCHBOARD)
        .await;
    let ended = gateway.cli(&["call", "demo_echo", "text=hi", "--ca", &cert]).run().await;
    assert_eq!(ended.assert_code(0).json(), json!({ "text": "hi" }));
    gateway.stop().await;
}

#[tokio::test]
async fn nodes_speak_wss() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, cert) = start(dir.path()).await;
    let mut node = tokio::process::Command::new(env!("CARGO_BIN_EXE_e2e-hello-node"))
        .arg(gateway.nodes_url())
        .env("SSL_CERT_FILE", &cert)
        .env("SA_NODE_ID", "hello")
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let shown = sa_gateway_kit::eventually("the node", || async {
        Some(gateway.cli(&["nodes", "--ca", &cert]).run().await.stdout)
            .filter(|text| text.contains("online"))
    })
    .await;
    assert!(shown.contains("hello"), "{shown}");
    let ended = gateway.cli(&["call", "node.echo", "--arg", "x=1", "--ca", &cert]).run().await;
    assert_eq!(ended.assert_code(0).json(), json!({ "x": 1 }));
    gateway.stop().await;
    soon(node.wait()).await.unwrap();
}

/// The same rule as for every other command.
#[tokio::test]
async fn a_machine_trusts_the_certificate_that_it_is_told_to_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, cert) = start(dir.path()).await;
    let workspace = dir.path().to_str().unwrap();
    let node = |more: &[&str]| {
        gateway.cli(&["node", "--id", "laptop", "--workspace", workspace]).args(more)
    };
    let ended = node(&[]).run().await;
    assert!(
        ended.assert_code(3).stderr.contains("certificate is not signed by"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("--ca FILE"), "{}", ended.stderr);
    let ended = node(&["--ca", "/nowhere/ca.pem"]).run().await;
    assert!(ended.assert_code(2).stderr.contains("/nowhere/ca.pem"), "{}", ended.stderr);

    let there = async || {
        sa_gateway_kit::eventually("the node", || async {
            Some(gateway.cli(&["nodes", "--ca", &cert]).run().await.stdout)
                .filter(|text| text.contains("online"))
        })
        .await
    };
    let by_option = node(&["--ca", &cert]).start();
    there().await;
    by_option.signal(rustix::process::Signal::INT);
    by_option.end().await.assert_code(0);
    let by_variable = node(&[]).env("SWITCHBOARD_CA", &cert).start();
    there().await;
    by_variable.signal(rustix::process::Signal::INT);
    by_variable.end().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn handshakes_that_fail_or_never_end_are_counted_and_hold_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, cert) = start(dir.path()).await;
    let connect = || tokio::net::TcpStream::connect(gateway.address());
    let (mut plain, mut silent) = (connect().await.unwrap(), connect().await.unwrap());
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    plain.shutdown().await.unwrap();
    let rest = async |stream: &mut tokio::net::TcpStream| {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(3 * TIMEOUT, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection to be closed");
        answer
    };
    let told = String::from_utf8(rest(&mut plain).await).unwrap();
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("https_required"), "{told}");
    gateway.cli(&["status", "--ca", &cert]).run().await.assert_code(0);
    assert!(rest(&mut silent).await.is_empty());
    let authorization = format!("Authorization: Bearer {}", gateway.operator);
    let url = format!("{}/metrics", gateway.url);
    let metrics = Cli::new("curl")
        .args(&["--silent", "--cacert", &cert, "--header", &authorization, &url])
        .run()
        .await;
    for reason in ["handshake", "slow_handshake"] {
        let line = format!("switchboard_refused_total{{at=\"tls\",reason=\"{reason}\"}} 1\n");
        assert!(metrics.stdout.contains(&line), "{}", metrics.stdout);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(dir.path()).await;
    let data = dir.path().join("data");
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let (_, other_key) = certificate(&other).await;
    for (cert, key, word) in [
        ("/nowhere/cert.pem", key.as_str(), "/nowhere/cert.pem"),
        (&cert, empty, empty),
        (empty, &key, empty),
        (&cert, &other_key, "belong together"),
    ] {
        let ended = Cli::new(SWITCHBOARD)
            .args(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()])
            .args(&["--tls-cert", cert, "--tls-key", key])
            .run()
            .await;
        ended.assert_code(2);
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
        assert!(
            !ended.stdout.contains("listening"),
            "it never said that it was ready: {}",
            ended.stdout
        );
    }
}
