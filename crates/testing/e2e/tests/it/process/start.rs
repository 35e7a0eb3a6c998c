//! A script can start the gateway, wait for one line, read the operator's token from a private
//! file, and stop the gateway with SIGTERM.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sa_gateway_kit::{Cli, RawHttp, Setup, soon};

use crate::SWITCHBOARD;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn says_where_it_listens_keeps_its_token_private_and_ends_in_good_order() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    assert!(gateway.url.starts_with("http://127.0.0.1:") && gateway.port() != 0, "{}", gateway.url);
    assert_eq!(mode(&gateway.data_dir()), 0o700);
    assert_eq!(mode(&gateway.data_dir().join("operator.token")), 0o600);
    assert_eq!(
        gateway.operator().get("/v1/status").await.status,
        200,
        "the token in the file works at once"
    );
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    for line in gateway.stderr().lines() {
        serde_json::from_str::<serde_json::Value>(line)
            .expect("away from a terminal, every line of the log is JSON");
    }
}

#[tokio::test]
async fn stdout_has_the_one_line_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("new/data");
    let args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let started = Cli::new(SWITCHBOARD).args(&args).start();
    started.says("listening on http://127.0.0.1:").await;
    started.signal(rustix::process::Signal::TERM);
    let ended = started.end().await;
    ended.assert_code(0);
    assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
}

#[tokio::test]
async fn the_first_run_has_tools_to_call() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    let reply = operator.call("demo_echo", serde_json::json!({ "text": "hello" })).await;
    assert_eq!(reply.result()["text"], "hello");
    gateway.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_a_way_out() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let args = ["serve", "--listen", gateway.address(), "--data-dir", data.to_str().unwrap()];
    let ended = soon(Cli::new(SWITCHBOARD).args(&args).run()).await;
    ended.assert_code(1);
    assert!(
        ended.stderr.contains(gateway.address()) && ended.stderr.contains("hint:"),
        "{}",
        ended.stderr
    );
    // The message also identifies the other gateway and its process, which helps a user that forgot
    // about it.
    let told = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "a Switchboard with another data directory",
        &format!("process {}", gateway.pid()),
        "--listen",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[tokio::test]
async fn a_port_that_another_program_has_is_not_taken_for_a_gateways() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let args = ["up", "--listen", &address, "--data-dir", dir.path().to_str().unwrap()];
    let ended = soon(Cli::new(SWITCHBOARD).args(&args).run()).await;
    let told = ended.assert_code(1).stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        [&*format!("process {}", std::process::id()), "is not Switchboard", "--listen 127.0.0.1:0"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[tokio::test]
async fn whoever_starts_it_twice_is_told_that_it_runs_and_what_to_do() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let data = gateway.data_dir();
    // The data directory identifies the gateway, with the same address or with another one.
    for listen in [gateway.address(), "127.0.0.1:0"] {
        for command in ["up", "serve"] {
            let args = [command, "--listen", listen, "--data-dir", data.to_str().unwrap()];
            let ended = soon(Cli::new(SWITCHBOARD).args(&args).run()).await;
            let told = ended.assert_code(1).stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            for words in [
                &*format!("already running on {}", data.display()),
                &gateway.url,
                &format!("as process {}, for ", gateway.pid()),
                &format!("switchboard --data-dir {} status", data.display()),
                &format!("kill {}", gateway.pid()),
                "--listen 127.0.0.1:0 --data-dir DIR",
            ] {
                assert!(told.contains(words), "{words}: {told}");
            }
            assert!(!told.contains("cannot listen"), "{told}");
        }
    }
    assert_eq!(gateway.operator().get("/v1/status").await.status, 200, "the first one goes on");
}

#[tokio::test]
async fn two_gateways_never_share_a_data_directory() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let data = gateway.data_dir();
    let args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let ended = Cli::new(SWITCHBOARD).args(&args).run().await;
    ended.assert_code(1);
    assert!(ended.stderr.contains("another"), "{}", ended.stderr);
    assert_eq!(gateway.operator().get("/v1/status").await.status, 200, "the first one goes on");
    gateway.cli(&["status"]).run().await.assert_code(0);
}

#[tokio::test]
async fn an_address_that_cannot_be_left_behind_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    // A directory in place of the file causes a write error, like a full disk.
    std::fs::create_dir_all(dir.path().join("endpoint/x")).unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()];
    let started = Cli::new(SWITCHBOARD).args(&args).start();
    started.says("listening on http://127.0.0.1:").await;
    started.warns("cannot write the gateway's address").await;
    started.signal(rustix::process::Signal::TERM);
    started.end().await.assert_code(0);
}

#[tokio::test]
async fn the_demo_can_be_called_once_the_gateway_listens() {
    // Several attempts, because a gateway that reports too early may still succeed sometimes.
    for _ in 0..3 {
        let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
        let (address, token, body) =
            (gateway.address(), &gateway.operator, r#"{"args":{"text":"x"}}"#);
        // Raw bytes, because an HTTP client would be slower.
        let mut raw = RawHttp::connect(&gateway).await;
        raw.write(&format!(
            "POST /v1/tools/demo.echo/call HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let answer = raw.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        gateway.stop().await;
    }
}
