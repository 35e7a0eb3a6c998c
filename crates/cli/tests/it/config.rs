//! The configuration explains itself: the source of each value, and the file, line and key of each
//! mistake.

use sa_gateway::config::flags::FLAGS;
use sa_gateway_kit::{Cli, Finished};

use crate::SWITCHBOARD;

async fn explain(dir: &std::path::Path, key: &str, with_env: bool, flags: &[&str]) -> Finished {
    let file = dir.join("switchboard.toml");
    let mut cli = Cli::new(SWITCHBOARD).args(&["--config", file.to_str().unwrap()]).args(flags);
    if with_env {
        cli = cli.env("SWITCHBOARD_LIMITS_PENDING_TOTAL", "77");
    }
    cli.args(&["config", "explain", key]).run().await
}

#[tokio::test]
async fn each_value_says_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    std::fs::write(&file, "[limits]\n\npending_total = 5\n").unwrap();
    let shown =
        explain(dir.path(), "limits.pending_total", false, &[]).await.assert_code(0).stdout.clone();
    assert!(shown.contains("= 5") && shown.contains(&format!("{}:3", file.display())), "{shown}");
    let shown =
        explain(dir.path(), "limits.pending_total", true, &[]).await.assert_code(0).stdout.clone();
    assert!(
        shown.contains("= 77") && shown.contains("$SWITCHBOARD_LIMITS_PENDING_TOTAL"),
        "{shown}"
    );
    let shown = explain(dir.path(), "limits.pending_per_node", false, &[])
        .await
        .assert_code(0)
        .stdout
        .clone();
    assert!(shown.contains("= 50") && shown.contains("default"), "{shown}");
    let shown = explain(dir.path(), "data.dir", false, &["--data-dir", "/x/y"])
        .await
        .assert_code(0)
        .stdout
        .clone();
    assert!(shown.contains("/x/y") && shown.contains("--data-dir"), "{shown}");
    let ended = explain(dir.path(), "limits.pending", false, &[]).await;
    ended.assert_code(2);
    assert!(ended.stderr.contains("limits.pending"), "{}", ended.stderr);
}

#[tokio::test]
async fn each_flag_that_sets_a_key_is_known_to_whoever_asks_about_it() {
    for flag in FLAGS {
        let typed = format!("--{}", flag.long);
        let value = flag.value.map(|_| "127.0.0.1:9");
        let args: Vec<&str> = [&*typed].into_iter().chain(value).collect();
        let cli = || Cli::new(SWITCHBOARD).args(&["config", "explain", flag.key]).args(&args);
        let explained = cli().args(&["--json"]).run().await.assert_code(0).json();
        assert_eq!(
            (&explained["from"], &explained["flag"]),
            (&typed.clone().into(), &typed.clone().into())
        );
        let expected = value.map_or_else(|| true.into(), serde_json::Value::from);
        assert_eq!(explained["value"], expected, "{explained}");
        let shown = cli().run().await;
        let from = format!("from      {typed}");
        assert!(
            shown.assert_code(0).stdout.lines().any(|line| line.trim() == from),
            "{}",
            shown.stdout
        );
    }
    let shown = Cli::new(SWITCHBOARD).args(&["config", "show", "--insecure"]).run().await;
    assert!(shown.assert_code(0).stdout.contains("--insecure"), "{}", shown.stdout);
}

#[tokio::test]
async fn a_mistake_in_a_flag_names_the_flag_its_key_and_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for (flags, words) in [
        (
            vec!["--listen", "nowhere"],
            vec!["--listen (server.listen)", "127.0.0.1:3210", "nowhere"],
        ),
        (vec!["--listen", ""], vec!["--listen (server.listen)", "empty"]),
        (vec!["--tls-cert", "/a"], vec!["--tls-cert (server.tls_cert)", "server.tls_key"]),
        (
            vec!["--tls-cert", "/nowhere/a", "--tls-key", "/nowhere/b"],
            vec![
                "--tls-cert (server.tls_cert)",
                "/nowhere/a",
                "--tls-key (server.tls_key)",
                "/nowhere/b",
            ],
        ),
        (vec!["--data-dir", "/dev/null"], vec!["--data-dir (data.dir)", "not a directory"]),
    ] {
        for command in [vec!["serve"], vec!["up"], vec!["config", "check"]] {
            let place = ["--data-dir", data.to_str().unwrap()];
            let place = if flags.contains(&"--data-dir") { &[][..] } else { &place[..] };
            let ended = Cli::new(SWITCHBOARD).args(&command).args(place).args(&flags).run().await;
            let told = ended.assert_code(2).stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.iter().all(|word| told.contains(word)), "{command:?} {flags:?}: {told}");
        }
    }
    assert!(!data.exists(), "a gateway that cannot start leaves nothing behind");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_found_without_starting_anything() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cert, key) = (
        dir.path().join("switchboard.toml"),
        dir.path().join("cert.pem"),
        dir.path().join("key.pem"),
    );
    std::fs::write(&cert, "no certificate").unwrap();
    std::fs::write(&key, "no key").unwrap();
    let text = format!("[server]\ntls_cert = {cert:?}\ntls_key = {key:?}\n");
    std::fs::write(&file, text).unwrap();
    let check =
        || Cli::new(SWITCHBOARD).args(&["--config", file.to_str().unwrap(), "config", "check"]);
    let told = check().run().await;
    for words in [
        "switchboard.toml:2: server.tls_cert",
        "no certificate",
        "switchboard.toml:3: server.tls_key",
    ] {
        assert!(told.assert_code(2).stderr.contains(words), "{words}: {}", told.stderr);
    }
}

#[tokio::test]
async fn a_mistake_names_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    let data = dir.path().join("data");
    for (text, line, word) in [
        ("[server]\nlissten = \"x\"\n", 2, "lissten"),
        ("\n\n[limits]\npending_total = \"many\"\n", 4, "many"),
        ("[limits]\npending_total = 0\n", 2, "limits.pending_total"),
        ("[limits]\npending_total = -1\n", 2, "-1"),
        ("[nodes]\nping_interval_ms = 100\ndead_after_ms = 100\n", 3, "nodes.dead_after_ms"),
        ("[server\n", 1, ""),
        ("[log]\nfilter = \"info,=x=\"\n", 2, "log.filter"),
        ("[server]\ntls_cert = \"/nowhere/a\"\ntls_key = \"/nowhere/b\"\n", 2, "/nowhere/a"),
    ] {
        std::fs::write(&file, text).unwrap();
        let common = ["--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
        for command in [vec!["config", "check"], vec!["serve", "--listen", "127.0.0.1:0"]] {
            let ended = Cli::new(SWITCHBOARD).args(&common).args(&command).run().await;
            ended.assert_code(2);
            let place = format!("switchboard.toml:{line}");
            assert!(
                ended.stderr.contains(&place) && ended.stderr.contains(word),
                "{text}: {}",
                ended.stderr
            );
        }
    }
    assert!(!data.exists(), "a gateway that cannot start leaves nothing behind");
}

#[tokio::test]
async fn all_mistakes_are_told_from_the_top_with_what_was_meant_and_the_rest_can_be_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    let text = "[log]\nfilter = \"=x=\"\n[server]\nlissten = \"x\"\n[limits]\npending_total = 7\nmax_call_ms = 0\n\
        [upstream.files]\ncomand = [\"x\"]\n[journal]\nkeep_days = \"x\"\n";
    std::fs::write(&file, text).unwrap();
    let cli = || Cli::new(SWITCHBOARD).args(&["--config", file.to_str().unwrap(), "config"]);
    let told = cli().args(&["check"]).run().await;
    let places: Vec<Option<usize>> = [2, 4, 7, 9, 11]
        .iter()
        .map(|line| told.assert_code(2).stderr.find(&format!("switchboard.toml:{line}:")))
        .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", told.stderr);
    for words in ["did you mean server.listen?", "did you mean upstream.files.command?"] {
        assert!(told.stderr.contains(words), "{}", told.stderr);
    }
    // A valid key is explained with its effective value. Mistakes in other keys only get a note.
    let explained = cli().args(&["explain", "limits.pending_total"]).run().await;
    let shown = &explained.assert_code(0).stdout;
    assert!(shown.contains("= 7") && shown.contains("switchboard.toml:6"), "{shown}");
    assert!(!explained.stderr.contains("lissten"), "{}", explained.stderr);
    let check = format!("switchboard --config {} config check", file.display());
    assert!(
        explained.stderr.contains("5 mistakes") && explained.stderr.contains(&check),
        "{}",
        explained.stderr
    );
    let wrong = cli().args(&["explain", "journal.keep_days"]).run().await;
    let shown = &wrong.assert_code(0).stdout;
    assert!(shown.contains("switchboard.toml:11") && shown.contains("Number of days"), "{shown}");
    assert!(
        wrong.stderr.contains("4 other mistakes") && !wrong.stderr.contains("keep_days"),
        "{}",
        wrong.stderr
    );
    let section = cli().args(&["explain", "server"]).run().await;
    let own = section.assert_code(0).stdout.contains("did you mean server.listen?");
    assert!(
        own && section.stderr.contains("4 other mistakes"),
        "{}{}",
        section.stdout,
        section.stderr
    );
    let section = cli().args(&["explain", "limits", "--json"]).run().await.assert_code(0).json();
    assert!(
        section["keys"].as_array().unwrap().iter().any(|key| key["key"] == "limits.pending_total"),
        "{section}"
    );
    let unknown = cli().args(&["explain", "limits.pendng_total"]).run().await;
    assert!(
        unknown.assert_code(2).stderr.contains("config explain limits.pending_total"),
        "{}",
        unknown.stderr
    );
    // The only mistake is reported directly, after the answer.
    std::fs::write(&file, "[server]\nlissten = \"x\"\n").unwrap();
    let script = format!(
        "{SWITCHBOARD} --config {} config explain limits.pending_total 2>&1",
        file.display()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (answer, mistake) =
        (said.find("limits.pending_total ="), said.find("did you mean server.listen?"));
    assert!(answer.is_some() && answer < mistake, "{said}");
    // A file that is not valid TOML does not prevent the question either.
    std::fs::write(&file, "[server\n").unwrap();
    let explained = cli().args(&["explain", "limits.pending_total"]).run().await;
    assert!(explained.assert_code(0).stderr.contains("switchboard.toml:1"), "{}", explained.stderr);
    cli().args(&["show"]).run().await.assert_code(2);
}

#[tokio::test]
async fn a_listener_that_others_reach_needs_tls_or_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", "--listen", "0.0.0.0:0", "--data-dir", dir.path().to_str().unwrap()];
    let ended = Cli::new(SWITCHBOARD).args(&args).run().await;
    ended.assert_code(2);
    for word in ["0.0.0.0", "--tls-cert", "--insecure"] {
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
    }
    let started = Cli::new(SWITCHBOARD).args(&args).args(&["--insecure"]).start();
    started.says("listening on http://0.0.0.0:").await;
    started.signal(rustix::process::Signal::TERM);
    started.end().await.assert_code(0);
}

#[tokio::test]
async fn a_variable_of_ours_that_is_no_text_is_named_and_nothing_starts_without_it() {
    use std::os::unix::ffi::OsStrExt as _;
    let broken = std::ffi::OsStr::from_bytes(b"canary\xff");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let workspace = dir.path().to_str().unwrap();
    let commands: [&[&str]; 6] = [
        &["config", "check"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["up", "--listen", "127.0.0.1:0"],
        &["tools"],
        &["node", "--gateway", "ws://127.0.0.1:1", "--workspace", workspace],
        &["doctor"],
    ];
    for name in
        ["SA_NODE_TOKEN", "SA_NODE_TOKENS", "SWITCHBOARD_LIMITS_PENDING_TOTAL", "SWITCHBOARD_KEY"]
    {
        for command in commands {
            let cli =
                Cli::new(SWITCHBOARD).args(&["--data-dir", data.to_str().unwrap()]).args(command);
            let ended = cli.env(name, broken).run().await;
            ended.assert_code(if command == ["doctor"] { 1 } else { 2 });
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(
                told.contains(&format!("the environment variable {name}: ")),
                "{command:?}: {told}"
            );
            assert!(!told.contains("canary"), "{command:?}: {told}");
        }
    }
    assert!(!data.exists(), "a gateway that cannot start leaves nothing behind");
    // The rest of the configuration can still be explained.
    let cli = Cli::new(SWITCHBOARD).args(&["config", "explain", "limits.pending_total"]);
    let explained = cli.env("SWITCHBOARD_LIMITS_PENDING_TOTAL", broken).run().await;
    let shown = &explained.assert_code(0).stdout;
    assert!(
        shown.contains("= 1000") && shown.contains("not valid UTF-8") && !shown.contains("canary"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_variable_of_others_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let broken = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let mut command = std::process::Command::new(SWITCHBOARD);
    let ended =
        command.env("BROKEN", broken).env(broken, "x").args(["config", "check"]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn a_gateway_names_variables_that_set_nothing() {
    let gateway = sa_gateway_kit::Setup::new()
        .env("SWITCHBOARD_LIMITS_PENDNIG_TOTAL", "5")
        .spawn(SWITCHBOARD)
        .await;
    sa_gateway_kit::eventually("the warning", || async {
        gateway.stderr().contains("SWITCHBOARD_LIMITS_PENDNIG_TOTAL").then_some(())
    })
    .await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_file_of_the_gateway_that_runs_is_named() {
    let config = "[upstream.files]\nenabled = false\ncommand = [\"no-such-server\"]\n[models.gpt]\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key = \"canary-1\"\n[sessions.agents.bot]\ncommand = [\"bot\"]\nenv = { KEY = \"canary-2\" }";
    let gateway = sa_gateway_kit::Setup::new().config(config).spawn(SWITCHBOARD).await;
    let file = gateway.config_file();
    let file = file.to_str().unwrap();
    // Another command does not read the file that the gateway was started with, and prints a note
    // about it.
    let without = gateway.cli(&["config", "show"]).run().await;
    let note = format!("uses {file}; add --config {file} to see it");
    assert!(without.assert_code(0).stderr.contains(&note), "{}", without.stderr);
    assert!(without.stderr.starts_with("file: none"), "{}", without.stderr);
    let with = gateway.cli(&["--config", file, "config", "show"]).run().await;
    assert_eq!(with.assert_code(0).stderr, format!("file: {file}\n"));
    let row = |key: &str| {
        with.stdout
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_else(|| panic!("{}", with.stdout))
    };
    assert!(row("upstream.files.command").contains("no-such-server"), "{}", with.stdout);
    assert!(row("upstream.files.command").ends_with(":3"), "{}", with.stdout);
    assert!(row("data.dir").contains(gateway.data_dir().to_str().unwrap()), "{}", with.stdout);
    assert!(
        row("models.gpt.api_key").contains("***") && !with.stdout.contains("canary-1"),
        "{}",
        with.stdout
    );
    assert!(row("server.listen").chars().count() < 100, "{}", with.stdout);
    let json = gateway.cli(&["--config", file, "config", "show", "--json"]).run().await;
    assert!(!json.stdout.contains("canary"), "{}", json.stdout);
    // Values are JSON values, not text that must be parsed again.
    let keys = json.json()["keys"].clone();
    let value = |key: &str| {
        keys.as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap()["value"].clone()
    };
    assert_eq!(value("server.insecure"), false);
    assert_eq!(value("nodes.ping_interval_ms"), 15_000);
    assert_eq!(value("server.listen"), "127.0.0.1:3210");
    assert_eq!(value("policy.deny"), serde_json::json!([]));
    assert_eq!(value("upstream.files.command"), serde_json::json!(["no-such-server"]));
    assert_eq!(value("models.gpt.api_key"), "***");
    let explained =
        gateway.cli(&["--config", file, "config", "explain", "--json"]).run().await.json()["keys"]
            .clone();
    let default = |key: &str| {
        explained.as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap()["value"]
            .clone()
    };
    assert_eq!(default("upstream.NAME.max_running"), 50);
    assert_eq!(default("upstream.NAME.timeout_ms"), serde_json::Value::Null);
    assert_eq!(default("models.NAME.tools"), serde_json::json!(["*"]));
    // A section is explained with the keys that are set in it.
    let section = gateway.cli(&["--config", file, "config", "explain", "upstream"]).run().await;
    let words = ["upstream.NAME.bearer", "upstream.files.command"];
    assert!(
        words.iter().all(|word| section.assert_code(0).stdout.contains(word)),
        "{}",
        section.stdout
    );
    let one =
        gateway.cli(&["--config", file, "config", "explain", "upstream.files.command"]).run().await;
    assert!(one.stdout.contains("upstream.files.command = [\"no-such-server\"]"), "{}", one.stdout);
    let usual = Cli::new(SWITCHBOARD)
        .args(&["config", "explain", "data.dir"])
        .env("XDG_DATA_HOME", "/x/y")
        .run()
        .await;
    assert!(usual.stdout.contains("data.dir = \"/x/y/switchboard\""), "{}", usual.stdout);
    gateway.stop().await;
}

#[tokio::test]
async fn the_file_is_named_whatever_is_wrong_with_it_and_one_that_is_missing_brings_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    let file = file.to_str().unwrap();
    for (text, advice) in [
        (None, "--config FILE"),
        (Some("[server]\nlisten = 5\n"), "config explain server.listen"),
        (Some("[server]\nlisten = \"x\"\n"), "config explain server.listen"),
    ] {
        if let Some(text) = text {
            std::fs::write(file, text).unwrap();
        }
        let ended = Cli::new(SWITCHBOARD).args(&["--config", file, "config", "check"]).run().await;
        assert!(
            ended.assert_code(2).stderr.starts_with(&format!("file: {file}\n")),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains(advice), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_misspelt_variable_is_told_with_the_one_that_was_meant_in_the_width_that_there_is() {
    let check =
        || Cli::new(SWITCHBOARD).args(&["config", "check"]).env("SWITCHBOARD_LIMITS_PENDNG", "5");
    let told = check().run().await.assert_code(0).stderr.clone();
    assert!(
        told.contains("did you mean") && told.contains("SWITCHBOARD_LIMITS_PENDING_TOTAL"),
        "{told}"
    );
    let shown = check().run_on_terminal(80).await.stdout;
    assert!(
        shown.contains("warning: ") && shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
}

#[tokio::test]
async fn a_file_with_a_number_that_is_too_large_is_not_taken_for_empty() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("switchboard.toml");
    std::fs::write(&file, "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 9223372036854775808\n")
        .unwrap();
    let ended = Cli::new(SWITCHBOARD)
        .args(&["--config", file.to_str().unwrap(), "config", "check"])
        .run()
        .await;
    let told = &ended.assert_code(2).stderr;
    assert!(
        told.contains("switchboard.toml:3: server.workers") && told.contains("from 0 to 1024"),
        "{told}"
    );
    let endless =
        Cli::new(SWITCHBOARD).args(&["--config", "/dev/zero", "config", "check"]).run().await;
    assert!(endless.assert_code(2).stderr.contains("/dev/zero"), "{}", endless.stderr);
}

#[tokio::test]
async fn what_a_file_of_the_configuration_turns_out_to_be_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let data = dir.path().join("data");
    for file in ["/dev/zero", pipe.to_str().unwrap(), "/"] {
        for command in [&["config", "check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let cli =
                Cli::new(SWITCHBOARD).args(command).args(&["--data-dir", data.to_str().unwrap()]);
            let ended = cli.args(&["--tls-cert", file, "--tls-key", file]).run().await;
            let told = ended.assert_code(2).stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            for words in [
                format!("server.tls_cert): {file} cannot"),
                format!("server.tls_key): {file} cannot"),
            ] {
                assert!(told.contains(&words) && told.contains("must be a file"), "{told}");
            }
        }
    }
    for option in ["--token-file", "--ca", "--config"] {
        let cli = Cli::new(SWITCHBOARD).args(&[
            "tools",
            "--url",
            "http://127.0.0.1:1",
            option,
            "/dev/zero",
        ]);
        let ended = cli.env("SWITCHBOARD_TOKEN", "sb_x").run().await;
        assert!(ended.assert_code(2).stderr.contains("larger than"), "{option}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_configuration_and_a_token_may_come_through_a_pipe() {
    let script = format!(
        "{SWITCHBOARD} --config <(printf '[limits]\\npending_total = 7\\n') config explain limits.pending_total\n\
         {SWITCHBOARD} tools --url http://127.0.0.1:1 --token-file <(echo sb_x)"
    );
    let ended = Cli::new("bash").args(&["-c", &script]).run().await;
    assert!(ended.assert_code(3).stdout.contains("= 7"), "{}{}", ended.stdout, ended.stderr);
}
