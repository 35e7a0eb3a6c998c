//! With `--json`, stdout contains only JSON: the answer, or the problem that the API reports. The
//! commands come from the command-line definition itself, so new ones are covered.

use sa_gateway_kit::{Cli, Finished, Hello, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Commands that use stdout for a protocol.
const SPEAK: [&str; 2] = ["mcp", "relay"];
/// Commands that read no configuration and need no gateway; only their arguments can be wrong.
const ALWAYS_WELL: [&str; 2] = ["completions", "openapi"];

/// Returns every executable command, with values for its required arguments.
fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        for below in below {
            let path: Vec<String> =
                path.iter().cloned().chain([below.get_name().to_owned()]).collect();
            walk(below, &path, found);
        }
        if !path.is_empty() && !command.is_subcommand_required_set() {
            let needed =
                command.get_arguments().filter(|arg| arg.is_required_set()).flat_map(|arg| {
                    let known =
                        arg.get_possible_values().first().map(|value| value.get_name().to_owned());
                    let option = arg.get_long().map(|long| format!("--{long}"));
                    option.into_iter().chain([known.unwrap_or_else(|| "x".to_owned())])
                });
            found.push(path.iter().cloned().chain(needed).collect());
        }
    }
    let mut found = Vec::new();
    walk(&switchboard::command(), &[], &mut found);
    assert!(found.len() > 40, "{found:?}");
    found
}

fn is(words: &[String], names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| words.starts_with(&name.split(' ').map(str::to_owned).collect::<Vec<_>>()))
}

async fn run(words: &[String], more: &[&str], env: (&str, &str)) -> Finished {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let cli =
        Cli::new(SWITCHBOARD).args(&["--data-dir", dir.path().join("data").to_str().unwrap()]);
    cli.args(&words).args(more).env(env.0, env.1).run().await
}

#[track_caller]
fn check(words: &[String], ended: &Finished, code: i32, kind: &str) {
    ended.assert_code(code);
    let problem = ended.json();
    assert_eq!(problem["kind"], kind, "{words:?}: {problem}");
    assert!(
        problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()),
        "{words:?}: {problem}"
    );
    assert_eq!(problem["type"], format!("urn:switchboard:problem:{kind}"), "{words:?}");
    assert!(problem["retryable"].is_boolean(), "{words:?}: {problem}");
    assert!(!ended.stderr.is_empty(), "{words:?}: people read words");
}

#[tokio::test]
async fn words_that_are_wrong() {
    for words in commands() {
        let ended = run(&words, &["--json", "--no-such-option"], ("A", "b")).await;
        check(&words, &ended, 2, "usage");
        assert!(ended.json()["detail"].as_str().unwrap().contains("--no-such-option"), "{words:?}");
    }
    let none = run(&["no-such-command".to_owned()], &["--json"], ("A", "b")).await;
    check(&[], &none, 2, "usage");
    // Without `--json` there is no output for programs, and help is not an error.
    assert_eq!(
        run(&["status".to_owned()], &["--no-such-option"], ("A", "b")).await.assert_code(2).stdout,
        ""
    );
    let help = run(&["status".to_owned()], &["--json", "--help"], ("A", "b")).await;
    assert!(help.assert_code(0).stdout.contains("Usage:"), "{}", help.stdout);
}

#[tokio::test]
async fn a_configuration_that_is_wrong() {
    for words in commands().into_iter().filter(|words| !is(words, &ALWAYS_WELL)) {
        // A key can be explained nevertheless, but there is none named x.
        let more: &[&str] =
            if is(&words, &["config explain"]) { &["x", "--json"] } else { &["--json"] };
        let ended = run(&words, more, ("SWITCHBOARD_LIMITS_PENDING_TOTAL", "lots")).await;
        if is(&words, &SPEAK) {
            assert_eq!((ended.stdout.as_str(), ended.stderr.is_empty()), ("", false), "{words:?}");
        } else if is(&words, &["doctor"]) {
            let report = ended.assert_code(1).json();
            assert_eq!(report["ok"], false, "{report}");
        } else {
            check(&words, &ended, 2, "usage");
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there() {
    /// Commands that work without a gateway.
    const ALONE: [&str; 6] = ["serve", "up", "node", "config", "doctor", "relay"];
    let away = ["--json", "--url", "http://127.0.0.1:1"];
    for words in
        commands().into_iter().filter(|words| !is(words, &ALONE) && !is(words, &ALWAYS_WELL))
    {
        let ended = run(&words, &away, ("SWITCHBOARD_TOKEN", "sb_x")).await;
        if is(&words, &SPEAK) {
            assert_eq!((ended.stdout.as_str(), ended.stderr.is_empty()), ("", false), "{words:?}");
        } else if ended.code == Some(3) {
            check(&words, &ended, 3, "unreachable");
        } else {
            // The arguments are checked before any request is sent.
            let code = ended.code.unwrap();
            check(&words, &ended, code, ended.json()["kind"].as_str().unwrap());
        }
    }
}

#[tokio::test]
async fn what_the_gateway_refuses_is_its_own_problem() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let unknown: [&[&str]; 8] = [
        &["token", "revoke", "x"],
        &["calls", "x"],
        &["nodes", "probe", "x", "sh"],
        &["upstream", "remove", "x"],
        &["upstream", "show", "x"],
        &["plugin", "remove", "x"],
        &["sessions", "end", "x"],
        &["call", "x"],
    ];
    for words in unknown {
        let ended = gateway.cli(words).args(&["--json"]).run().await;
        let problem = ended.json();
        assert_ne!(ended.code, Some(0), "{words:?}");
        assert!(
            problem["detail"].is_string() && problem["kind"].is_string(),
            "{words:?}: {problem}"
        );
        assert_eq!(
            problem["type"],
            format!("urn:switchboard:problem:{}", problem["kind"].as_str().unwrap())
        );
    }
    // The same as the answer of the route.
    let told =
        gateway.cli(&["upstream", "remove", "x", "--json"]).run().await.assert_code(5).json();
    let request = gateway.operator().request(reqwest::Method::DELETE, "/v1/upstream/x");
    let answer: Value =
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(told, answer);
    // A failed call is reported only once.
    let _node = Hello::new("one").tool("a.b").connect(&gateway).await.echo();
    let wrong = gateway.cli(&["call", "a.b", "--timeout", "x", "--json"]).run().await;
    assert_eq!(wrong.assert_code(2).json()["kind"], "usage");
    // An answer that contains the problem is not followed by a second document.
    let none = gateway.cli(&["eligibility", "--bin", "no-such-program", "--json"]).run().await;
    assert_eq!(none.assert_code(5).json()["eligible"], json!([]));
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_starts_says_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["serve", "up"] {
        let data = dir.path().join(command);
        let words =
            [command, "--json", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        let started = Cli::new(SWITCHBOARD).args(&words).start();
        started.says("}\n").await;
        started.signal(rustix::process::Signal::TERM);
        let ended = started.end().await;
        let said = ended.assert_code(0).json();
        assert!(said["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{said}");
        assert_eq!(said["token_file"], data.join("operator.token").to_str().unwrap());
        assert_eq!(
            said["console"].is_string(),
            command == "up",
            "what signs somebody in is not for logs: {said}"
        );
    }
}
