//! `doctor` names each problem, with one line that fixes it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use sa_core::store::{Expect, Records as _};
use sa_gateway_kit::{Cli, FakeNode, Gateway, Hello, PluginAnswer, PluginServer, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Runs the doctor and returns the fix of the only finding that contains these words.
async fn diagnose(cli: Cli, words: &str) -> String {
    let ended = cli.args(&["doctor", "--json"]).run().await;
    ended.assert_code(1);
    let report = ended.json();
    let findings = report["findings"].as_array().unwrap().iter();
    let wrong: Vec<&Value> = findings.filter(|finding| finding["ok"] == false).collect();
    let found = wrong.iter().find(|finding| finding["what"].as_str().unwrap().contains(words));
    let found = found.unwrap_or_else(|| panic!("nothing about {words:?} in {report:#}"));
    let fix = found["fix"].as_str().unwrap().to_owned();
    assert!(!fix.is_empty() && !fix.contains('\n'), "{fix}");
    fix
}

async fn gateway() -> (Gateway, tokio::task::JoinHandle<()>) {
    let gateway = Setup::new().env("SA_NODE_TOKENS", "one:t1,two:t2").spawn(SWITCHBOARD).await;
    let node = Hello::new("one").capability("mail").token("t1").connect(&gateway).await.echo();
    (gateway, node)
}

#[tokio::test]
async fn all_is_well() {
    let (gateway, _node) = gateway().await;
    let ended = gateway.cli(&["doctor"]).run().await;
    ended.assert_code(0);
    assert!(!ended.stdout.contains("FIX"), "{}", ended.stdout);
    gateway.stop().await;
}

#[tokio::test]
async fn files_that_others_can_read() {
    let (gateway, _node) = gateway().await;
    let token = gateway.data_dir().join("operator.token");
    std::fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    assert!(
        diagnose(gateway.cli(&[]), "operator.token is open").await.starts_with("run `chmod 600")
    );
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(gateway.data_dir(), Permissions::from_mode(0o755)).unwrap();
    assert!(diagnose(gateway.cli(&[]), "data is open").await.starts_with("run `chmod 700"));
    std::fs::remove_file(&token).unwrap();
    diagnose(gateway.cli(&[]), "operator.token is missing").await;
    diagnose(gateway.cli(&[]), "no token for the gateway").await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_environment_and_the_configuration() {
    let (gateway, _node) = gateway().await;
    let cli = |name: &str, value: &str| gateway.cli(&[]).env(name, value);
    diagnose(cli("SWITCHBOARD_LIMITS_PENDNIG_TOTAL", "5"), "SWITCHBOARD_LIMITS_PENDNIG_TOTAL")
        .await;
    diagnose(cli("SWITCHBOARD_LIMITS_PENDING_TOTAL", "x"), "SWITCHBOARD_LIMITS_PENDING_TOTAL")
        .await;
    diagnose(cli("SWITCHBOARD_CONFIG", "/nowhere/x.toml"), "/nowhere/x.toml").await;
    let file = gateway.dir.path().join("wrong.toml");
    std::fs::write(&file, "[server]\nlisten = 5\n[limits]\npending_total = -1\n").unwrap();
    let wrong =
        cli("SWITCHBOARD_CONFIG", file.to_str().unwrap()).args(&["doctor"]).run().await.stdout;
    assert_eq!((wrong.matches("FIX").count(), wrong.contains("\\u{a}")), (2, false), "{wrong}");
    diagnose(cli("SA_NODE_TOKENS", "nonsense"), "SA_NODE_TOKENS").await;
    diagnose(cli("SWITCHBOARD_TOKEN", "wrong"), "the token is unknown").await;
    let tls = cli("SWITCHBOARD_SERVER_TLS_CERT", "/nowhere/cert.pem")
        .env("SWITCHBOARD_SERVER_TLS_KEY", "/nowhere/key");
    diagnose(tls, "/nowhere/cert.pem").await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_gateway_and_its_nodes() {
    let (gateway, node) = gateway().await;
    let mut second =
        Hello::new("two").capability("mail").tool("bad name").token("t2").connect(&gateway).await;
    diagnose(gateway.cli(&[]), "which \"one\" holds").await;
    diagnose(gateway.cli(&[]), "bad name").await;
    node.abort();
    let _ = node.await;
    sa_gateway_kit::eventually("the node gone", || async {
        (gateway.operator().get("/v1/nodes").await.body["nodes"][0]["online"] == false)
            .then_some(())
    })
    .await;
    diagnose(gateway.cli(&[]), "\"one\" disconnected").await;
    second.settle().await;

    diagnose(gateway.cli(&["--url", "http://127.0.0.1:1"]), "cannot reach the gateway").await;
    let data = gateway.data_dir();
    gateway.stop().await;
    let data = data.to_str().unwrap();
    // Uses another address, because some program may listen at the default address of this machine.
    let elsewhere = Cli::new(SWITCHBOARD)
        .args(&["--data-dir", data])
        .env("SWITCHBOARD_SERVER_LISTEN", "127.0.0.1:1");
    diagnose(elsewhere, "cannot reach the gateway").await;
    diagnose(Cli::new(SWITCHBOARD).args(&["--data-dir", "/nowhere/at/all"]), "does not exist")
        .await;
}

#[tokio::test]
async fn servers_of_plugins() {
    let (gateway, _node) = gateway().await;
    let headers = vec![("connection", "close".to_owned())];
    let nothing = PluginAnswer::Say { status: 404, headers, body: bytes::Bytes::default() };
    let server = PluginServer::start(move |_| nothing.clone()).await;
    let manifest = server.manifest("rates", json!({}));
    let body = json!({ "manifest": manifest, "allow_private": [server.address] });
    let added = gateway.operator().post("/v1/plugins", &body).await;
    assert_eq!(added.status, 201, "{}", added.text);
    // Any answer shows that the server is up, and the check calls none of its functions.
    gateway.cli(&["doctor"]).run().await.assert_code(0);
    assert!(server.asked().iter().all(|request| request.method == "HEAD" && request.path == "/"));
    let address = server.address.clone();
    server.end().await;
    let fix = diagnose(
        gateway.cli(&[]),
        &format!("the server of the plugin \"rates\" is unavailable: http://{address}"),
    )
    .await;
    assert!(fix.contains("switchboard plugin disable rates"), "{fix}");
    gateway.cli(&["plugin", "disable", "rates"]).run().await.assert_code(0);
    gateway.cli(&["doctor"]).run().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_without_nodes_is_well_and_one_that_ends_says_so() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let shown = gateway.cli(&["doctor"]).run().await;
    let tools = gateway.cli(&["status", "--json"]).run().await.json()["tools"].clone();
    assert_ne!(tools, 0, "the gateway has some of its own");
    let told = format!("note  no node is connected, and all {tools} tools are built in");
    assert!(shown.assert_code(0).stdout.contains(&told), "{}", shown.stdout);
    // A running call delays the shutdown.
    let mut node = Hello::new("one").capability("mail").connect(&gateway).await;
    let call = gateway.operator().call_later("mail.send", json!({}));
    let request = node.request().await;
    gateway.begin_stop();
    let shown = sa_gateway_kit::eventually("the end", || async {
        Some(gateway.cli(&["doctor"]).run().await)
            .filter(|shown| shown.stdout.contains("SHUTTING DOWN"))
    });
    shown.await.assert_code(0);
    node.answer(&request.id, json!({})).await;
    call.await.unwrap();
    assert_eq!(gateway.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_port_that_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let cli = Cli::new(SWITCHBOARD).args(&["--data-dir", dir.path().to_str().unwrap()]);
    // A program that listens but is not a gateway.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = taken.accept() {
            drop(stream);
        }
    });
    diagnose(cli.env("SWITCHBOARD_SERVER_LISTEN", &address), "another process listens").await;
}

#[tokio::test]
async fn damage_in_the_store_is_found_with_its_position() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _node = Hello::new("one").tool("a.b").connect(&gateway).await.echo();
    let mark = "mark-of-one-record-among-many";
    let call = gateway.operator().call("a.b", json!({ "text": mark })).await;
    assert_eq!(call.status, 200);
    let deep = || {
        Cli::new(SWITCHBOARD).args(&[
            "--data-dir",
            gateway.data_dir().to_str().unwrap(),
            "doctor",
            "--deep",
        ])
    };
    // The doctor does not check a store that is in use.
    let busy = deep().run().await;
    assert!(
        busy.assert_code(1).stdout.contains(&format!("in use by process {}", gateway.pid())),
        "{}",
        busy.stdout
    );
    assert!(busy.stdout.contains("-> stop the gateway"), "{}", busy.stdout);
    let dir = Arc::clone(&gateway.dir);
    let data = gateway.data_dir();
    gateway.stop().await;
    let deep =
        || Cli::new(SWITCHBOARD).args(&["--data-dir", data.to_str().unwrap(), "doctor", "--deep"]);
    let well = deep().run().await;
    assert!(well.assert_code(0).stdout.contains("switchboard.db is intact"), "{}", well.stdout);
    let file = data.join("switchboard.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let places: Vec<usize> = bytes
        .windows(mark.len())
        .enumerate()
        .filter(|(_, seen)| *seen == mark.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "the record is in the file");
    for at in places {
        bytes[at] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let ill = deep().run().await;
    ill.assert_code(1);
    let told = ill
        .stdout
        .lines()
        .find(|line| line.contains("FIX"))
        .unwrap_or_else(|| panic!("{}", ill.stdout));
    assert!(told.contains("switchboard.db") && told.contains("calls"), "{told}");
    // This damage is not a loss of the newest data, so it cannot be accepted as a loss.
    let refused = Cli::new(SWITCHBOARD).args(&[
        "--data-dir",
        data.to_str().unwrap(),
        "doctor",
        "--accept-loss",
    ]);
    assert!(refused.run().await.assert_code(1).stdout.contains("is damaged"));

    // A gateway on the damaged store reports the damage in every view, and everything else works.
    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    let _node = Hello::new("one").tool("a.b").connect(&gateway).await.echo();
    gateway.cli(&["doctor"]).run().await.assert_code(0);
    for _ in 0..3 {
        let answer = gateway.operator().get("/v1/calls").await;
        assert_eq!(
            (answer.status, answer.body["kind"].as_str()),
            (503, Some("store")),
            "{}",
            answer.text
        );
        let hint = answer.body["hint"].as_str().unwrap();
        assert!(hint.contains("switchboard doctor --deep"), "{hint}");
    }
    let trouble = gateway.operator().get("/v1/status").await.body["store_trouble"].clone();
    assert!(trouble["message"].as_str().unwrap().contains("switchboard.db"), "{trouble}");
    let fix = diagnose(gateway.cli(&[]), "switchboard.db is damaged").await;
    assert!(fix.contains("doctor --deep") && fix.contains(data.to_str().unwrap()), "{fix}");
    let status = gateway.cli(&["status"]).run().await;
    assert!(status.assert_code(0).stdout.contains("WARNING: the store"), "{}", status.stdout);
    let logged = gateway.stderr().lines().filter(|line| line.contains("is damaged")).count();
    assert_eq!(logged, 1, "once, however often it is met: {}", gateway.stderr());
    assert_eq!(gateway.operator().call("a.b", json!({})).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_cannot_be_read_is_told_of_and_opens_nothing() {
    let gateway = Setup::new().start().await;
    let (id, token) = gateway.token(serde_json::json!({ "name": "builder", "role": "node" })).await;
    let record = gateway.inner().store.get("tokens", &id).await.unwrap().unwrap();
    let newer = String::from_utf8_lossy(&record.value).replace("\"node\"", "\"captain\"");
    gateway.inner().store.put("tokens", &id, newer.into(), Expect::Anything).await.unwrap();
    let (dir, data, operator) =
        (Arc::clone(&gateway.dir), gateway.data_dir(), gateway.operator.clone());
    gateway.stop().await;
    let deep = Cli::new(SWITCHBOARD)
        .args(&["--data-dir", data.to_str().unwrap(), "doctor", "--deep"])
        .run()
        .await;
    let told = |text: &str| text.contains(&format!("the token {id} cannot be read"));
    assert!(told(&deep.assert_code(1).stdout), "{}", deep.stdout);

    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    assert_eq!(gateway.operator, operator, "the others are as good as before");
    let fix = diagnose(gateway.cli(&[]), "cannot be read").await;
    assert!(fix.contains("doctor --deep"), "{fix}");
    let status = gateway.cli(&["status"]).run().await;
    assert!(told(&status.assert_code(0).stdout), "{}", status.stdout);
    assert!(told(&gateway.stderr()), "{}", gateway.stderr());
    // The unreadable token was the only node token, and without it no node may connect.
    for query in ["", &format!("token={token}")] {
        assert_eq!(FakeNode::upgrade(&gateway, query).await.unwrap_err().status, 401, "{query}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_loss_of_the_newest_can_be_accepted_and_is_not_otherwise() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    gateway.token(json!({ "name": "kept", "role": "agent" })).await;
    let (dir, data, operator) =
        (Arc::clone(&gateway.dir), gateway.data_dir(), gateway.operator.clone());
    gateway.stop().await;
    let (file, older) = (data.join("switchboard.db"), dir.path().join("older.db"));
    std::fs::copy(&file, &older).unwrap();
    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    gateway.token(json!({ "name": "lost", "role": "agent" })).await;
    let dir = Arc::clone(&gateway.dir);
    gateway.stop().await;
    std::fs::copy(&older, &file).unwrap();

    let cli = |words: &[&str]| {
        Cli::new(SWITCHBOARD).args(&["--data-dir", data.to_str().unwrap()]).args(words)
    };
    for _ in 0..2 {
        // A retry does not accept the loss.
        let refused = cli(&["serve", "--listen", "127.0.0.1:0"]).run().await;
        let advice = format!("switchboard --data-dir {} doctor --accept-loss", data.display());
        assert!(refused.assert_code(1).stderr.contains(&advice), "{}", refused.stderr);
        let found = cli(&["doctor", "--deep"]).run().await;
        assert!(found.assert_code(1).stdout.contains(&advice), "{}", found.stdout);
    }
    let accepted = cli(&["doctor", "--accept-loss"]).run().await;
    let told = &accepted.assert_code(0).stdout;
    assert!(told.contains("has lost commits") && told.contains("the loss is accepted"), "{told}");
    assert!(told.contains("is intact"), "{told}");
    let again = cli(&["doctor", "--accept-loss"]).run().await;
    assert!(!again.assert_code(0).stdout.contains("the loss is accepted"), "{}", again.stdout);
    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    assert_eq!(gateway.operator, operator);
    let tokens = gateway.operator().get("/v1/tokens").await.text;
    assert!(tokens.contains("kept") && !tokens.contains("lost"), "{tokens}");
    let (dir, data) = (Arc::clone(&gateway.dir), gateway.data_dir());
    gateway.stop().await;

    // The same for a missing file.
    std::fs::remove_file(data.join("switchboard.db")).unwrap();
    let found = cli(&["doctor", "--deep"]).run().await;
    assert!(found.assert_code(1).stdout.contains("is missing or empty"), "{}", found.stdout);
    cli(&["doctor", "--accept-loss"]).run().await.assert_code(0);
    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    assert_eq!(
        gateway.operator().get("/v1/tokens").await.status,
        200,
        "the operator's token still works"
    );
    gateway.stop().await;
}
