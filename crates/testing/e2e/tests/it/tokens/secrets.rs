//! No token and no secret argument appears in a log, in the history, in the metrics, in an error or
//! in a process list.

use sa_gateway_kit::{Cli, FakeNode, Hello, Setup, assert_nowhere, find_in_files};
use serde_json::json;

use crate::SWITCHBOARD;

const CANARY: &str = "canary-f6d1a0c3";

#[tokio::test]
async fn a_canary_is_nowhere() {
    let gateway = Setup::new()
        .config("[log]\nfilter = \"debug\"")
        .env("SA_NODE_TOKEN", CANARY)
        .spawn(SWITCHBOARD)
        .await;
    let operator = gateway.operator();
    let _node = Hello::new("n").capability("a").token(CANARY).connect(&gateway).await.echo();
    let (_, agent_token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let agent = gateway.agent(&agent_token);

    // In arguments and results with names that mark secrets.
    let args = json!({ "password": CANARY, "deep": [{ "api_key": CANARY }], "Authorization": { "x": CANARY } });
    let reply = agent.call("a.b", args.clone()).await;
    assert_eq!(reply.result(), args, "the node itself gets them");
    let mut errors = vec![agent.call("nothing", json!({ "token": CANARY })).await.text];
    // In invalid tokens, in every position.
    let wrong = format!("{CANARY}-wrong");
    errors.push(gateway.agent(&wrong).get(&format!("/v1/tools?token={wrong}")).await.text);
    errors.push(agent.get(&format!("/v1/tools?token={wrong}")).await.text);
    for query in [format!("token={wrong}"), format!("token={wrong}&node_id=x")] {
        errors.push(FakeNode::upgrade(&gateway, &query).await.unwrap_err().body.to_string());
    }
    for args in [vec!["status"], vec!["tools"], vec!["call", "a.b", "--arg", "x=1"]] {
        let ended = gateway.cli(&args).env("SWITCHBOARD_TOKEN", &wrong).run().await;
        ended.assert_code(4);
        errors.push(ended.stderr + &ended.stdout);
    }
    let config = gateway.cli(&["config", "show"]).env("SA_NODE_TOKEN", CANARY).run().await.stdout;
    let history = sa_gateway_kit::eventually("the history", || async {
        Some(operator.get("/v1/calls").await)
            .filter(|reply| reply.body["calls"].as_array().unwrap().len() == 2)
    })
    .await;
    let metrics = operator.get_text("/metrics").await;
    let mut lists = String::new();
    for path in ["/v1/nodes", "/v1/tokens", "/v1/audit", "/v1/status", "/v1/tools"] {
        lists.push_str(&operator.get_text(path).await);
    }
    let command = std::fs::read_to_string(format!("/proc/{}/cmdline", gateway.pid())).unwrap();

    let (dir, operator_token) = (gateway.dir.clone(), gateway.operator.clone());
    let mut gateway = gateway;
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    let log = gateway.stderr();
    assert!(log.contains("DEBUG"), "the log is as talkative as it was asked to be");
    let errors = errors.join("\n");
    let texts = [
        ("the log", log.as_str()),
        ("the errors", &errors),
        ("the history", &history.text),
        ("the metrics", &metrics),
        ("the lists", &lists),
        ("the configuration", &config),
        ("the command line", &command),
    ];
    for secret in [CANARY, &operator_token, &agent_token] {
        assert_nowhere(secret, &texts);
    }
    assert_eq!(find_in_files(dir.path(), CANARY), Vec::<std::path::PathBuf>::new());
    assert_eq!(find_in_files(dir.path(), &agent_token), Vec::<std::path::PathBuf>::new());
    assert_eq!(
        find_in_files(dir.path(), &operator_token),
        [dir.path().join("data/operator.token")]
    );
}

#[tokio::test]
async fn a_mistake_in_the_environment_does_not_repeat_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()];
    let ended = Cli::new(SWITCHBOARD).args(&args).env("SA_NODE_TOKENS", CANARY).run().await;
    ended.assert_code(2);
    assert!(ended.stderr.contains("SA_NODE_TOKENS"), "{}", ended.stderr);
    assert_nowhere(CANARY, &[("stderr", &ended.stderr)]);
}

#[tokio::test]
async fn no_command_about_a_configuration_repeats_a_secret_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("switchboard.toml"), dir.path().join("data"));
    let address = format!("https://me:{CANARY}@a.example/?key={CANARY}");
    for (text, table, key) in [
        (format!("url = \"http://a/\"\nheaders = \"Bearer {CANARY}\""), "upstream.web", "headers"),
        (format!("url = \"http://a/\"\nheaders = [\"{CANARY}\"]"), "upstream.web", "headers"),
        (
            format!("url = \"http://a/\"\nheaders = {{ A = \"{CANARY}\" }}"),
            "upstream.web",
            "headers",
        ),
        (
            format!("url = \"http://a/\"\nheaders = {{ \"A: {CANARY}\" = \"\" }}"),
            "upstream.web",
            "headers",
        ),
        (format!("url = \"http://a/\"\nbearer = \"{CANARY}\""), "upstream.web", "bearer"),
        (format!("url = \"http://a/\"\noauth = \"{CANARY}\""), "upstream.web", "oauth"),
        (format!("url = \"http://a/\"\nbearer: {CANARY}=x"), "upstream.web", "bearer"),
        (format!("url = \"{address}\""), "upstream.web", "url"),
        (format!("url = [\"{address}\"]"), "upstream.web", "url"),
        (format!("url = \"http://a/?key={CANARY}\""), "upstream.web", "url"),
        (format!("command = [\"a\", \"{address}\"]"), "upstream.program", "command"),
        (format!("command = \"a {address}\""), "upstream.program", "command"),
        (
            format!("command = [\"a\"]\nenv = {{ \"A={CANARY}\" = \"\" }}"),
            "sessions.agents.bot",
            "env",
        ),
        (format!("base_url = \"{address}\"\napi_key = \"{CANARY}\""), "models.gpt", "base_url"),
        (format!("otlp_endpoint = \"{address}\""), "telemetry", "otlp_endpoint"),
        (format!("public_url = \"me:{CANARY}@a.example\""), "server", "public_url"),
    ] {
        std::fs::write(&file, format!("[{table}]\n{text}\n")).unwrap();
        let key = format!("{table}.{key}");
        let commands: [&[&str]; 7] = [
            &["config", "check"],
            &["config", "show"],
            &["config", "explain", &key],
            &["config", "explain", table],
            &["config", "explain", "limits.pending_total"],
            &["doctor"],
            &["tools"],
        ];
        for command in commands {
            for json in [&[][..], &["--json"]] {
                let common =
                    ["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
                let ended =
                    Cli::new(SWITCHBOARD).args(&common).args(command).args(json).run().await;
                assert!(!ended.stdout.is_empty() || !ended.stderr.is_empty(), "{command:?}");
                assert_nowhere(
                    CANARY,
                    &[(&format!("{command:?} of {text}"), &(ended.stdout + &ended.stderr))],
                );
            }
        }
    }
}

#[tokio::test]
async fn a_key_in_a_servers_address_is_for_that_server_alone() {
    let config = format!(
        "[log]\nfilter = \"debug\"\n[upstream.one]\nurl = \"http://127.0.0.1:9/mcp?key={CANARY}\""
    );
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let operator = gateway.operator();
    let file = gateway.config_file();
    let added = format!("http://127.0.0.1:9/mcp?key={CANARY}");
    let mut shown = String::new();
    for args in [
        &["upstream", "add", "two", &added][..],
        &["upstream", "list"],
        &["upstream", "show", "one"],
        &["upstream", "show", "two"],
        &["status"],
        &["doctor"],
        &["audit"],
        &["--config", file.to_str().unwrap(), "config", "show"],
        &["upstream", "remove", "two"],
    ] {
        for json in [&[][..], &["--json"]] {
            let ended = gateway.cli(args).args(json).run().await;
            shown += &format!("{}{}", ended.stdout, ended.stderr);
        }
    }
    assert!(shown.contains("http://127.0.0.1:9/mcp?***"), "{shown}");
    for path in ["/v1/upstream", "/v1/audit", "/v1/status", "/metrics"] {
        shown += &operator.get_text(path).await;
    }
    let mut gateway = gateway;
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    let log = gateway.stderr();
    assert!(log.contains("127.0.0.1:9"), "the log tells of the server");
    assert_nowhere(CANARY, &[("the lists", &shown), ("the log", &log)]);
}

#[tokio::test]
async fn a_password_in_the_gateways_address_is_not_repeated() {
    for url in [format!("http://me:{CANARY}@127.0.0.1:1"), format!("me:{CANARY}@127.0.0.1:1")] {
        let cli = Cli::new(SWITCHBOARD)
            .args(&["tools"])
            .env("SWITCHBOARD_URL", &url)
            .env("SWITCHBOARD_TOKEN", "sb_x");
        let ended = cli.run().await;
        assert!(ended.stderr.contains("127.0.0.1:1"), "{}", ended.stderr);
        assert_nowhere(CANARY, &[("stderr", &ended.stderr)]);
    }
}
