//! `status` counts the gateway's upstream servers and sessions, and names the failed servers with
//! reasons. Only operators receive this.

use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Cli, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;
use crate::upstream::server::stdio;

#[tokio::test]
async fn servers_and_sessions_are_counted_and_trouble_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let off = "[upstream.off]\ncommand = [\"true\"]\nenabled = false\n";
    let gateway = Setup::new()
        .config(&format!("{}{off}", stdio("good", &[], dir.path(), "")))
        .spawn(SWITCHBOARD)
        .await;
    let bare = gateway.cli(&["status"]).run().await;
    assert!(bare.assert_code(0).stdout.contains("sessions  0 open, 0 running"), "{}", bare.stdout);
    gateway
        .cli(&["upstream", "add", "bad", "--command", "/no/such/program"])
        .run()
        .await
        .assert_code(0);
    until(&gateway, "good", "ready").await;
    let first =
        gateway.operator().call("session_message", json!({ "message": "hello" })).await.result();
    gateway.operator().call("session_message", json!({ "message": "hello" })).await.result();
    // The gateway keeps retrying the server, and during a retry it is neither up nor down.
    eventually("all of it in words", || async {
        let shown = gateway.cli(&["status"]).run().await.assert_code(0).stdout.clone();
        let words = ["1 up, 1 disabled, 1 down", "bad: ", "/no/such/program", "2 open, 0 running"];
        words.iter().all(|words| shown.contains(words)).then_some(())
    })
    .await;
    let status = eventually("it down", || async {
        let status = gateway.cli(&["status", "--json"]).run().await.json();
        (status["upstream"]["down"][0]["name"] == "bad").then_some(status)
    })
    .await;
    assert_eq!(
        (&status["upstream"]["up"], &status["upstream"]["disabled"]),
        (&json!(1), &json!(1)),
        "{status}"
    );
    assert!(
        status["upstream"]["down"][0]["why"].as_str().unwrap().contains("/no/such/program"),
        "{status}"
    );
    assert_eq!(status["sessions"], json!({ "open": 2, "running": 0 }));
    // An ended session is no longer counted.
    gateway
        .cli(&["sessions", "end", first["session_id"].as_str().unwrap()])
        .run()
        .await
        .assert_code(0);
    assert_eq!(gateway.operator().get("/v1/status").await.body["sessions"]["open"], 1);

    for role in ["agent", "caller", "user", "participant", "monitor", "node"] {
        let (_, token) = gateway.token(json!({ "name": format!("a-{role}"), "role": role })).await;
        let refused = gateway.cli(&["status"]).env("SWITCHBOARD_TOKEN", &token).run().await;
        refused.assert_code(4);
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(!said.contains("bad") && !said.contains("session"), "{role}: {said}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_is_said_of_what_there_is_none_of() {
    let gateway = Setup::new().config("[sessions]\nenabled = false\n").spawn(SWITCHBOARD).await;
    let shown = gateway.cli(&["status"]).run().await.assert_code(0).stdout.clone();
    assert!(!shown.contains("upstream") && !shown.contains("sessions"), "{shown}");
    assert!(gateway.operator().get("/v1/status").await.body["sessions"].is_null());
    gateway.stop().await;
}

/// The commands that the console suggests.
#[tokio::test]
async fn commands_name_the_data_directory_unless_it_is_the_usual_one() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("share");
    let (usual, other) = (home.join("switchboard"), dir.path().join("an other"));
    let command = async |data: Option<&str>| {
        let data: Vec<&str> = data.iter().flat_map(|data| ["--data-dir", data]).collect();
        let cli = |words: &[&str]| {
            Cli::new(SWITCHBOARD).args(words).args(&data).env("XDG_DATA_HOME", &home)
        };
        let started = cli(&["serve", "--listen", "127.0.0.1:0"]).start();
        started.says("listening on").await;
        let status = cli(&["status", "--json"]).run().await.assert_code(0).json();
        started.signal(rustix::process::Signal::TERM);
        started.end().await.assert_code(0);
        status["command"].as_str().unwrap().to_owned()
    };
    assert_eq!(command(None).await, "switchboard");
    assert_eq!(command(usual.to_str()).await, "switchboard", "with and without the directory");
    assert_eq!(
        command(other.to_str()).await,
        format!("switchboard --data-dir '{}'", other.display())
    );
}
