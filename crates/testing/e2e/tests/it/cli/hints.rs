//! The commands that hints suggest work, and fit the command that was run.

use sa_core::{RawJson, Schema};
use sa_gateway_kit::mcp::{self, Era};
use sa_gateway_kit::sessions::{id, session};
use sa_gateway_kit::{Cli, Setup, eventually};
use serde_json::{Map, Value, json};

use crate::SWITCHBOARD;

#[tokio::test]
async fn a_sessions_tools_are_shown_where_its_calls_point() {
    let gateway = Setup::new().config("[sessions]\ncaller_grace_ms = 100").spawn(SWITCHBOARD).await;
    let session = session(&gateway.operator()).await;
    let id = id(&session);
    let bad = gateway.cli(&["call", "ant_send", "--session", id, "--args-json", "{}"]).run().await;
    bad.assert_code(6);
    let hint = format!("switchboard tools ant_send --session {id}");
    assert!(bad.stderr.contains(&hint), "{}", bad.stderr);
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    let shown = gateway.cli(&words).run().await;
    shown.assert_code(0);
    let example = format!("switchboard call --session {id} ant_send text=TEXT");
    assert!(
        shown.stdout.contains("Sends it") && shown.stdout.contains(&example),
        "{}",
        shown.stdout
    );
    gateway.cli(&["tools", "ant_send"]).run().await.assert_code(5);
    assert!(gateway.cli(&["tools", "--session", id]).run().await.stdout.contains("ant_recall"));
}

#[tokio::test]
async fn a_channels_methods_are_shown_where_its_calls_point() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut worker = sa_gateway_kit::Participant::join(&gateway, "room", "worker").await;
    let parameters = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    worker
        .update(
            json!({ "handle": "w", "methods": [{ "name": "greet", "parameters": parameters }] }),
        )
        .await;
    let bad = gateway.cli(&["channel", "call", "room", "greet"]).run().await;
    bad.assert_code(6);
    assert!(
        bad.stderr.contains("switchboard tools pubsub_worker_greet --channel room"),
        "{}",
        bad.stderr
    );
    let shown = gateway.cli(&["tools", "pubsub_worker_greet", "--channel", "room"]).run().await;
    shown.assert_code(0);
    let example = "switchboard channel call room pubsub_worker_greet name=NAME";
    assert!(shown.stdout.contains(example), "{}", shown.stdout);
}

#[tokio::test]
async fn hints_name_commands_that_show_what_they_say() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let unknown = gateway.cli(&["sessions", "nope"]).run().await;
    unknown.assert_code(5);
    assert!(unknown.stderr.contains("switchboard sessions`"), "{}", unknown.stderr);
    assert!(!unknown.stderr.contains("session_list"), "{}", unknown.stderr);
    let nowhere = Cli::new(SWITCHBOARD).args(&["relay", "/nope"]).run().await;
    nowhere.assert_code(8);
    assert!(
        nowhere.stderr.contains("`switchboard sessions ID` to see the socket"),
        "{}",
        nowhere.stderr
    );
    let unnamed = Cli::new(SWITCHBOARD).args(&["relay"]).run().await;
    unnamed.assert_code(2);
    assert!(unnamed.stderr.contains("SWITCHBOARD_RELAY_SOCKET"), "{}", unnamed.stderr);
}

#[tokio::test]
async fn hints_are_about_the_gateway_that_was_named() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let data = gateway.data_dir();
    let named = Cli::new(SWITCHBOARD)
        .args(&["--data-dir", data.to_str().unwrap(), "sessions", "nope"])
        .run()
        .await;
    let command = format!("switchboard --data-dir {} sessions`", data.display());
    assert!(named.assert_code(5).stderr.contains(&command), "{}", named.stderr);
    // A variable also applies to the next command, so the hint does not repeat it.
    let set = gateway.cli(&["sessions", "nope"]).run().await;
    assert!(set.stderr.contains("switchboard sessions`"), "{}", set.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("project");
    let node = Cli::new(SWITCHBOARD).args(&[
        "node",
        "--id",
        "laptop",
        "--workspace",
        missing.to_str().unwrap(),
    ]);
    let ended = node.run().await;
    assert!(
        ended.assert_code(2).stderr.contains(&format!("mkdir -p {}", missing.display())),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn a_name_that_is_not_there_brings_the_one_that_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[upstream.files]\nenabled = false\ncommand = [\"no-such-server\"]";
    let gateway = Setup::new().demo().config(config).spawn(SWITCHBOARD).await;
    gateway.token(json!({ "name": "builder", "role": "agent" })).await;
    let manifest = dir.path().join("manifest.json");
    let api = json!([{ "name": "tell", "description": "Tells it", "url": "https://weather.example.com/tell",
        "parameters": { "type": "object", "properties": {} } }]);
    let text = json!({ "identifier": "weather", "version": "1", "meta": { "title": "Weather" }, "api": api });
    std::fs::write(&manifest, text.to_string()).unwrap();
    gateway.cli(&["plugin", "add", manifest.to_str().unwrap()]).run().await.assert_code(0);
    for (args, meant) in [
        (&["tools", "demo_ecoh"][..], "demo_echo"),
        (&["tools", "echo"], "demo_echo"),
        (&["upstream", "show", "fils"], "files"),
        (&["upstream", "restart", "Files"], "files"),
        (&["upstream", "remove", "filse"], "files"),
        (&["upstream", "logout", "filse"], "files"),
        (&["plugin", "show", "wether"], "weather"),
        (&["plugin", "disable", "wether"], "weather"),
        (&["token", "show", "bilder"], "builder"),
        (&["token", "revoke", "bulider"], "builder"),
    ] {
        let ended = gateway.cli(args).run().await;
        ended.assert_code(5);
        assert!(
            ended.stderr.contains(&format!("did you mean {meant}?")),
            "{args:?}: {}",
            ended.stderr
        );
    }
    // Without a similar name, the hint suggests the list.
    for args in [
        ["tools", "qqqq"],
        ["plugin show", "qqqq"],
        ["upstream show", "qqqq"],
        ["token show", "qqqq"],
    ] {
        let words: Vec<&str> = args[0].split(' ').chain([args[1]]).collect();
        let ended = gateway.cli(&words).run().await;
        ended.assert_code(5);
        assert!(
            !ended.stderr.contains("did you mean") && ended.stderr.contains("switchboard "),
            "{}",
            ended.stderr
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_argument_is_told_how_to_be_a_text_only_where_that_helps() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut worker = sa_gateway_kit::Participant::join(&gateway, "room", "worker").await;
    let parameters = json!({ "type": "object", "required": ["name"], "properties": {
        "name": { "anyOf": [{ "type": "string" }] }, "times": { "type": "integer" } } });
    worker
        .update(
            json!({ "handle": "w", "methods": [{ "name": "greet", "parameters": parameters }] }),
        )
        .await;
    let said = async |args: &[&str]| {
        let ended =
            gateway.cli(&[&["channel", "call", "room", "greet"], args].concat()).run().await;
        ended.assert_code(6);
        ended.stderr
    };
    let guessed = said(&["name=5"]).await;
    assert!(guessed.contains("name:=5 to pass it as text"), "{guessed}");
    for args in [
        &["--args-json", r#"{"name":5}"#][..],
        &["times=2"],
        &["name=x", "times=1.5"],
        &["times=2", "name={}"],
    ] {
        let told = said(args).await;
        assert_eq!(told.contains("name:="), args.contains(&"name={}"), "{args:?}: {told}");
        assert!(!told.contains("KEY:=") && !told.contains("times:="), "{args:?}: {told}");
        assert!(told.contains("switchboard tools"), "{args:?}: {told}");
    }
}

#[tokio::test]
async fn a_number_out_of_bounds_is_not_told_to_be_a_text() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    demo_is_here(&gateway).await;
    let ended = gateway.cli(&["call", "demo_countdown", "from=200"]).run().await;
    let told = &ended.assert_code(6).stderr;
    assert!(told.contains("maximum of 100") && !told.contains(":="), "{told}");
    let ended = gateway.cli(&["call", "demo_echo", "txt=hello"]).run().await;
    let told = &ended.assert_code(6).stderr;
    assert!(told.contains("did you misspell it as \"txt\"?"), "{told}");
}

async fn demo_is_here(gateway: &sa_gateway_kit::Gateway) {
    let operator = gateway.operator();
    eventually("the demo node", || async {
        operator.tool_names().await.contains(&"demo_countdown".to_owned()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_example_of_every_tool_of_the_demo_fits_its_schema() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    demo_is_here(&gateway).await;
    let checked = check_examples(|args| gateway.cli(args)).await;
    assert!(checked > 5, "only {checked} tools have been seen");
}

/// Checks that the example of `tools NAME` has arguments that the tool accepts, for each tool.
/// Returns the number of tools.
pub(crate) async fn check_examples(cli: impl Fn(&[&str]) -> Cli) -> usize {
    let list = cli(&["tools", "--json"]).run().await.json();
    let tools = list["tools"].as_array().unwrap();
    for tool in tools {
        let shown = cli(&["tools", tool["name"].as_str().unwrap()]).run().await;
        let example =
            shown.assert_code(0).stdout.trim_end().lines().last().unwrap().trim().to_owned();
        // A shell splits the example into words, and a function replaces the command.
        let script = format!("switchboard() {{ shift 2; printf '%s\\n' \"$@\"; }}; {example}");
        let words = Cli::new("sh").args(&["-c", &script]).run().await;
        let words = words.assert_code(0).stdout.lines().filter(|word| !word.is_empty());
        let arguments: Value = words
            .map(|word| {
                let (key, value) = word.split_once('=').unwrap();
                let text = key.ends_with(':');
                let meant = serde_json::from_str(value)
                    .ok()
                    .filter(|_| !text)
                    .unwrap_or_else(|| json!(value));
                (key.trim_end_matches(':').to_owned(), meant)
            })
            .collect::<Map<_, _>>()
            .into();
        if tool["input_schema"].is_object() {
            let checked =
                Schema::new(RawJson::of(&tool["input_schema"])).validate(&RawJson::of(&arguments));
            assert!(checked.is_ok(), "{example}: {checked:?}");
        }
    }
    tools.len()
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_in_an_address_is_not_sent() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    for name in ["", ".", ".."] {
        for command in [
            "call",
            "token revoke",
            "upstream remove",
            "plugin show",
            "sessions end",
            "channel remove",
        ] {
            let words: Vec<&str> = command.split(' ').chain([name]).collect();
            let ended = gateway.cli(&words).run().await;
            assert!(
                !ended.assert_code(5).stderr.contains("there is no route"),
                "{words:?}: {}",
                ended.stderr
            );
        }
    }
}

#[tokio::test]
async fn a_token_that_is_refused_says_where_it_came_from() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let refused = gateway.cli(&["tools"]).env("SWITCHBOARD_TOKEN", "sb_wrong").run().await;
    let told = &refused.assert_code(4).stderr;
    assert!(
        told.contains("SWITCHBOARD_TOKEN, which is set")
            && told.contains("unset SWITCHBOARD_TOKEN"),
        "{told}"
    );
    let file = gateway.dir.path().join("old.token");
    std::fs::write(&file, "sb_wrong").unwrap();
    let refused = gateway.cli(&["tools", "--token-file", file.to_str().unwrap()]).run().await;
    let told = &refused.assert_code(4).stderr;
    assert!(told.contains("old.token") && !told.contains("unset"), "{told}");
}

#[tokio::test]
async fn programs_get_the_advice_that_people_get() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    gateway.token(json!({ "name": "builder", "role": "agent" })).await;
    let check = async |args: &[&str], token: Option<&str>| {
        let cli = gateway.cli(args).args(&["--json"]);
        let ended = if let Some(token) = token { cli.env("SWITCHBOARD_TOKEN", token) } else { cli }
            .run()
            .await;
        let told = ended
            .stderr
            .split_once(" hint: ")
            .unwrap_or_else(|| panic!("{args:?}: {}", ended.stderr))
            .1;
        assert_eq!(ended.json()["hint"].as_str(), Some(told.trim()), "{args:?}");
        told.to_owned()
    };
    assert!(check(&["tools"], Some("sb_wrong")).await.contains("unset SWITCHBOARD_TOKEN"));
    assert!(check(&["token", "revoke", "bulider"], None).await.contains("did you mean builder?"));
    assert!(check(&["sessions", "nope"], None).await.contains("switchboard sessions`"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_without_a_program_is_shown_how_to_have_one() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let refused = gateway.cli(&["upstream", "add", "files"]).run().await;
    let told = &refused.assert_code(2).stderr;
    assert!(told.contains("switchboard upstream add files -- PROGRAM ARGUMENTS"), "{told}");
}

#[tokio::test]
async fn an_mcp_client_is_not_told_what_to_type() {
    let gateway = Setup::new().start().await;
    let client = mcp::connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
    for name in ["Bash", "qqqq"] {
        let result = client.call_tool(mcp::request(name, json!({}))).await.unwrap();
        let told = mcp::value(&result)["content"][0]["text"].to_string();
        assert!(told.contains("there is no tool") && !told.contains("switchboard "), "{told}");
    }
}

#[tokio::test]
async fn what_the_api_calls_a_session_key_is_an_option_here() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let long = "x".repeat(2_000);
    let refused = gateway.cli(&["call", "session_list", "--session", &long]).run().await;
    refused.assert_code(2);
    assert!(
        refused.stderr.contains("--session must") && !refused.stderr.contains("session_key"),
        "{}",
        refused.stderr
    );
    let refused = gateway.cli(&["call", "session_list", "--idempotency-key", &long]).run().await;
    assert!(refused.stderr.contains("--idempotency-key must"), "{}", refused.stderr);
    let body = json!({ "args": {}, "session_key": long });
    let reply = gateway.operator().call_with("session_list", body).await;
    assert!(
        reply.assert_problem(400, "bad_request").detail().contains("session_key must"),
        "{}",
        reply.text
    );
    let session = session(&gateway.operator()).await;
    gateway.cli(&["sessions", "end", id(&session)]).run().await.assert_code(0);
    let over = gateway
        .cli(&["sessions", "send", "go on", "--no-wait", "--session", id(&session)])
        .run()
        .await;
    over.assert_code(9);
    assert!(
        over.stderr.contains("leave --session out") && !over.stderr.contains("session_id"),
        "{}",
        over.stderr
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_tools_bounds_are_shown_where_a_mistake_points() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    let bad = gateway.cli(&["call", "demo_countdown", "from=99999"]).run().await;
    bad.assert_code(6);
    assert!(
        bad.stderr.contains("\"from\": 99999 is greater than the maximum of 100"),
        "{}",
        bad.stderr
    );
    let shown = gateway.cli(&["tools", "demo_countdown"]).run().await;
    assert!(shown.assert_code(0).stdout.contains("to 100"), "{}", shown.stdout);
    let option = gateway.cli(&["call", "demo_countdown", "--from", "3", "--json"]).run().await;
    assert!(
        option.assert_code(2).json()["hint"].as_str().unwrap().ends_with("from=3"),
        "{}",
        option.stdout
    );
    let twice = gateway.cli(&["call", "demo_echo", "text=x", "text=y"]).run().await;
    assert!(twice.assert_code(2).stderr.contains("\"text\" is given twice"), "{}", twice.stderr);
    let body = json!({ "args": {}, "timeout_ms": "no" });
    let reply = gateway.operator().call_with("demo_echo", body).await;
    let told = reply.assert_problem(400, "bad_request").detail().to_owned();
    assert!(told.contains("timeout_ms: it must be a whole number"), "{told}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_without_a_model_or_a_skill_says_where_one_goes() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let chat = gateway.cli(&["chat", "-m", "hello"]).run().await;
    chat.assert_code(5);
    let file = gateway.config_file();
    assert!(chat.stderr.contains(&format!("add this to {}", file.display())), "{}", chat.stderr);
    let dir = gateway.data_dir().join("skills");
    let skills = gateway.cli(&["skills"]).run().await;
    assert!(skills.assert_code(0).stdout.contains(dir.to_str().unwrap()), "{}", skills.stdout);
    for narrow in [&["skills"][..], &["channel", "list"], &["channel", "ls"]] {
        let shown = gateway.cli(narrow).run_on_terminal(60).await;
        let prose = shown.assert_code(0).stdout.lines().filter(|line| line.contains(' '));
        let wide: Vec<&str> = prose.filter(|line| line.chars().count() > 60).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_is_refused_is_told_one_thing_to_do() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "secret").spawn(SWITCHBOARD).await;
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().to_str().unwrap();
    let refused = gateway.cli(&[
        "node",
        "--id",
        "laptop",
        "--workspace",
        workspace,
        "--allow-root",
        workspace,
    ]);
    let refused = refused.run_on_terminal(80).await;
    let told = &refused.assert_code(4).stdout;
    assert!(told.contains("refused this node") && !told.contains("?token="), "{told}");
    assert!(
        told.contains("--token-file FILE") && told.contains("token create NAME --role node"),
        "{told}"
    );
    let wide: Vec<&str> = told.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    gateway.stop().await;
}
