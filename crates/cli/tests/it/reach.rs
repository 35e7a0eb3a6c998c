//! A command sends the operator's token only to the gateway of its data directory, not to another
//! program at that address. A program that is not a gateway is recognised.

use sa_gateway_kit::{Cli, PluginAnswer, PluginServer, Setup};

use crate::SWITCHBOARD;

/// Starts a program that is not a gateway and answers every request.
async fn stranger() -> PluginServer {
    PluginServer::start(|_| PluginAnswer::text(200, "text/html", "<html>hello</html>")).await
}

const COMMANDS: [&[&str]; 6] =
    [&["tools"], &["call", "demo_echo", "n=1"], &["doctor"], &["console"], &["status"], &["tail"]];

#[tokio::test]
async fn whoever_listens_where_a_gateway_would_gets_no_token() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (dir, data) = (std::sync::Arc::clone(&gateway.dir), gateway.data_dir());
    gateway.stop().await;
    let stranger = stranger().await;
    let listens = format!("process {} (", std::process::id());
    // After a clean shutdown there is no address file, and after a kill there is an old one.
    for left in [None, Some(stranger.url(""))] {
        if let Some(url) = left {
            std::fs::write(data.join("endpoint"), url).unwrap();
        }
        for command in COMMANDS {
            let cli =
                Cli::new(SWITCHBOARD).args(&["--data-dir", data.to_str().unwrap()]).args(command);
            let ended = cli.env("SWITCHBOARD_SERVER_LISTEN", &stranger.address).run().await;
            ended.assert_code(if command == ["doctor"] { 1 } else { 3 });
            let told = format!("{}{}", ended.stdout, ended.stderr);
            let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                told.contains("none is running on") && told.contains(&listens),
                "{command:?}: {told}"
            );
        }
    }
    assert!(stranger.asked().is_empty(), "{:?}", stranger.asked());
    drop(dir);
}

#[tokio::test]
async fn a_gateway_that_runs_is_found_and_so_is_one_that_is_named() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    gateway.cli(&["tools"]).run().await.assert_code(0);
    gateway.cli(&["tools"]).env("SWITCHBOARD_URL", "").run().await.assert_code(0);
    gateway.cli(&["tools", "--url", ""]).run().await.assert_code(2);
    // Without the address file the gateway is not found, so the address must be given.
    std::fs::remove_file(gateway.data_dir().join("endpoint")).unwrap();
    gateway.cli(&["tools"]).run().await.assert_code(3);
    gateway.cli(&["tools", "--url", &gateway.url]).run().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_no_gateways_is_told_as_such() {
    let answers = [
        PluginAnswer::text(404, "text/html", "<html>404</html>"),
        PluginAnswer::text(401, "application/json", "{\"error\":\"who are you\"}"),
        PluginAnswer::text(200, "text/html", "<html>hello</html>"),
        PluginAnswer::text(200, "application/json", "{\"hello\":1}"),
    ];
    for answer in answers {
        let foreign = serde_json::json!({ "hello": 1 });
        let valid =
            matches!(&answer, PluginAnswer::Say { body, .. } if *body == foreign.to_string());
        let stranger = PluginServer::start(move |_| answer.clone()).await;
        let dir = tempfile::tempdir().unwrap();
        for command in COMMANDS {
            // JSON with another shape may come from another version.
            if valid && ["tools", "call", "console"].contains(&command[0]) {
                continue;
            }
            let cli = Cli::new(SWITCHBOARD)
                .args(&["--data-dir", dir.path().to_str().unwrap()])
                .args(command);
            let ended = cli
                .args(&["--url", &stranger.url("")])
                .env("SWITCHBOARD_TOKEN", "sb_x")
                .run()
                .await;
            ended.assert_code(if command == ["doctor"] { 1 } else { 3 });
            let told = format!("{}{}", ended.stdout, ended.stderr);
            let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
            let expected = format!(
                "the server at {} is not Switchboard",
                stranger.url("").trim_end_matches('/')
            );
            assert!(told.contains(&expected) && told.contains("--url"), "{command:?}: {told}");
            assert!(
                !told.contains("operator's token") && !told.contains("an effect"),
                "{command:?}: {told}"
            );
        }
        stranger.end().await;
    }
}

#[tokio::test]
async fn without_a_token_none_is_sent_and_the_places_are_named() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let cli = Cli::new(SWITCHBOARD).args(&["--data-dir", data, "--url", &gateway.url, "tools"]);
    let ended = cli.run().await;
    ended.assert_code(4);
    let told = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let file = dir.path().join("operator.token");
    for place in ["no token", "--token-file", "SWITCHBOARD_TOKEN", file.to_str().unwrap()] {
        assert!(told.contains(place), "{place}: {told}");
    }
    assert!(!told.contains("unknown"), "{told}");
    gateway.stop().await;
    // A request without a token has no Authorization header either.
    let stranger = stranger().await;
    let cli =
        Cli::new(SWITCHBOARD).args(&["--data-dir", data, "--url", &stranger.url(""), "tools"]);
    cli.run().await.assert_code(3);
    let asked = stranger.asked();
    assert!(
        !asked.is_empty() && asked.iter().all(|one| one.headers.get("authorization").is_none())
    );
}
