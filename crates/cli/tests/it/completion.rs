//! Tab completion offers the names from the gateway in a common bash, and prints nothing when the
//! gateway cannot be asked.

use std::path::Path;

use sa_gateway_kit::{Cli, Finished, Hello, Setup};
use serde_json::json;
use tokio::net::TcpListener;

use crate::SWITCHBOARD;

/// Loads the script and asks for its completions as bash does; the last word is the one to
/// complete.
const TAB: &str = r#"
    source <("$0" completions bash)
    [[ $(complete -p switchboard) =~ -F\ ([^ ]+) ]] || exit 9
    COMP_WORDS=(switchboard "$@") COMP_CWORD=$# COMP_TYPE=9
    "${BASH_REMATCH[1]}" switchboard "${@: -1}" "${COMP_WORDS[COMP_CWORD-1]}"
    printf '%s\n' "${COMPREPLY[@]}"
"#;

async fn tab(data: &Path, words: &[&str]) -> Finished {
    let shell =
        Cli::new("bash").args(&["-c", TAB, SWITCHBOARD, "--data-dir", data.to_str().unwrap()]);
    shell.args(words).folder(data.parent().unwrap()).run().await
}

async fn offered(data: &Path, words: &[&str]) -> Vec<String> {
    let ended = tab(data, words).await;
    assert_eq!(ended.assert_code(0).stderr, "", "{words:?}");
    ended.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn names_are_offered_where_they_are_asked_for() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let data = gateway.data_dir();
    let _node = Hello::new("laptop").tool("files.read").connect(&gateway).await.echo();
    let tools = offered(&data, &["call", ""]).await;
    let other = |name: &String| name.starts_with('-') || data.with_file_name(name).exists();
    assert!(
        tools.contains(&"files_read".to_owned()) && !tools.iter().any(other),
        "options or files: {tools:?}"
    );
    assert_eq!(
        offered(&data, &["call", "demo_"]).await,
        ["demo_countdown", "demo_echo", "demo_time"]
    );
    assert_eq!(offered(&data, &["tools", "demo_e"]).await, ["demo_echo"]);
    assert_eq!(offered(&data, &["calls", "--tool", "fi"]).await, ["files_read"]);
    let mut nodes = offered(&data, &["nodes", "probe", ""]).await;
    nodes.sort();
    assert!(nodes.contains(&"laptop".to_owned()) && nodes.len() == 2, "{nodes:?}");
    let called = gateway.operator().call("files.read", json!({})).await;
    let id = called.body["call_id"].as_str().unwrap();
    assert_eq!(offered(&data, &["calls", ""]).await, [id]);
    assert_eq!(offered(&data, &["calls", &id[..8]]).await, [id]);
    assert!(
        !offered(&data, &["calls", "--cancel", ""]).await.contains(&id.to_owned()),
        "it has ended"
    );
    // The option for the gateway works in any position, and bash splits the address into words.
    let port = gateway.port().to_string();
    let address = ["--url", "http", ":", "//127.0.0.1", ":", &port, "call", "demo_t"];
    assert_eq!(offered(&data, &address).await, ["demo_time"]);
    gateway.stop().await;
}

#[tokio::test]
async fn commands_and_options_and_files_are_offered_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(dir.path().join("gateway.toml"), "").unwrap();
    assert_eq!(offered(&data, &["do"]).await, ["doctor"]);
    assert_eq!(offered(&data, &["call", "x", "--idem"]).await, ["--idempotency-key"]);
    assert_eq!(offered(&data, &["completions", "b"]).await, ["bash"]);
    assert_eq!(offered(&data, &["--config", "gate"]).await, ["gateway.toml"]);
    assert!(
        offered(&data, &["status", ""]).await.contains(&"--json".to_owned()),
        "there is nothing else"
    );
}

#[tokio::test]
async fn where_nobody_answers_nothing_is_offered_and_nothing_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = |words: Vec<String>| words.iter().all(|word| word.starts_with('-'));
    assert!(options(offered(&data, &["call", ""]).await), "no gateway");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let address =
        ["--url", "http", ":", "//127.0.0.1", ":", &port, "--token-file", "other", "call", ""];
    std::fs::write(dir.path().join("other"), "sb_x").unwrap();
    assert!(options(offered(&data, &address).await), "one that never answers");
    std::fs::write(dir.path().join("wrong.toml"), "[nonsense").unwrap();
    assert!(
        options(offered(&data, &["--config", "wrong.toml", "call", ""]).await),
        "a configuration that is wrong"
    );
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let (data, token) = (gateway.data_dir(), dir.path().join("other"));
    let refused = ["--token-file", token.to_str().unwrap(), "call", ""];
    assert!(options(offered(&data, &refused).await), "a token that is none");
    gateway.stop().await;
}

/// Other people choose these names, and the shell runs a completed line at the next key.
#[tokio::test]
async fn a_name_that_a_shell_would_obey_is_not_offered() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut nodes = Vec::new();
    for id in ["$(reboot)", "x;reboot", "*", "--url=http://elsewhere", "laptop"] {
        nodes.push(Hello::new(id).tool("a.b").connect(&gateway).await);
    }
    assert_eq!(offered(&gateway.data_dir(), &["nodes", "probe", ""]).await, ["laptop"]);
    gateway.stop().await;
}
