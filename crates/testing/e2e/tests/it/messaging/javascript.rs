//! Node.js programs with the messaging package use channels of the real gateway. They send
//! messages, call each other, read history, survive a killed gateway, and exit by themselves.

use std::path::{Path, PathBuf};

use sa_gateway_kit::{Cli, Gateway, Participant, Proxy, Setup, Started};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// Returns the root of the packages and their build dependencies.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

pub(crate) fn package() -> PathBuf {
    root().join("packages/messaging")
}

/// Programs in their own directory, with the package installed under both of its names.
pub(crate) struct Programs {
    dir: TempDir,
}

impl Programs {
    pub(crate) fn install() -> Self {
        let built = package().join("programs/dist");
        assert!(built.is_dir(), "build the packages first: npm run build, or cargo xtask test");
        let dir = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(built).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        std::fs::write(dir.path().join("package.json"), r#"{"type":"module"}"#).unwrap();
        let modules = dir.path().join("node_modules");
        for (name, place) in [
            ("@natstack/agentic-messaging", package()),
            ("@switchboard/messaging", package()),
            ("zod", root().join("node_modules/zod")),
        ] {
            let link = modules.join(name);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(place, link).unwrap();
        }
        Self { dir }
    }

    /// Returns a program with the gateway's address and a token for each of these names. The tokens
    /// may call the tools of the node `demo`.
    pub(crate) async fn program(
        &self,
        gateway: &Gateway,
        name: &str,
        participants: &[&str],
    ) -> Cli {
        let file = self.dir.path().join(format!("{name}.js"));
        let mut cli = Cli::new("node").args(&[file.to_str().unwrap()]).env("CHANNEL", "room");
        cli = cli.env("SERVER_URL", &gateway.url);
        for participant in participants {
            let channels = ["room", "lobby"];
            let role = json!({ "name": participant, "role": "participant", "channels": channels, "tools": ["demo*"] });
            let (_, token) = gateway.token(role).await;
            cli = cli.env(&format!("TOKEN_{}", participant.to_uppercase()), &token);
        }
        cli
    }

    pub(crate) async fn worker(&self, gateway: &Gateway) -> Started {
        self.worker_with(gateway, &Participant::token(gateway, "worker").await).await
    }

    pub(crate) async fn worker_with(&self, gateway: &Gateway, token: &str) -> Started {
        let worker = self.program(gateway, "worker", &[]).await.env("TOKEN_WORKER", token).start();
        worker.says("ready as worker").await;
        worker
    }
}

#[tokio::test]
async fn the_first_program_of_the_readme() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let mut program = programs.program(&gateway, "quick-start", &[]).await;
    for name in ["WORKER", "AGENT"] {
        program = program.env(&format!("{name}_TOKEN"), &Participant::token(&gateway, name).await);
    }
    let ended = program.run().await;
    assert_eq!(ended.assert_code(0).stdout, "Hello, world!\n");
    assert_eq!(ended.stderr, "");
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_uses_a_workers_methods() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let worker = programs.worker(&gateway).await;
    let agent = programs.program(&gateway, "agent", &["agent"]).await.run().await;
    assert_eq!(agent.assert_code(0).stdout, "all well\n");
    let worker = worker.end().await;
    let said = worker.assert_code(0).stdout.replace("aborted\naborted\n", "aborted\n");
    assert_eq!(
        said, "ready as worker\naborted\npause requested\n",
        "twice, if the second one had begun"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn others_use_its_methods_as_tools_and_by_hand() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let worker = programs.worker(&gateway).await;
    let operator = gateway.operator();
    let call = |tool: &str, args: Value| {
        let (operator, path) =
            (operator.clone(), format!("/v1/tools/pubsub_worker_{tool}/call?channel=room"));
        async move { operator.post(&path, &json!({ "args": args })).await }
    };
    assert_eq!(
        call("search", json!({ "pattern": ".ts" })).await.body["result"],
        json!(["a.ts", "b.ts"])
    );
    call("search", json!({ "pattern": 7 })).await.assert_problem(422, "invalid_args");
    assert_eq!(call("broken", json!({})).await.body["detail"], "this one never works");

    // A participant with the raw protocol.
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let asked = json!({ "callId": "c1", "methodName": "screenshot", "providerId": "worker", "args": { "bytes": 5 } });
    ann.say("method-call", asked).await;
    let shot = ann.message("method-result").await;
    assert_eq!(shot["payload"]["content"]["format"], "png");
    assert_eq!(
        shot["attachmentMeta"],
        json!([{ "id": "img_a", "mimeType": "image/png", "name": "screen.png", "size": 5 }])
    );
    assert_eq!(shot["bytes"].as_array().unwrap().len(), 5);
    assert_eq!(call("stop", json!({})).await.body["result"], "stopping");
    worker.end().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn participants_talk_and_late_comers_read() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let chat =
        Programs::install().program(&gateway, "chat", &["ann", "bob", "carol"]).await.run().await;
    assert_eq!(chat.assert_code(0).stdout, "all well\n", "{}", chat.stderr);
    gateway.stop().await;
}

#[tokio::test]
async fn a_killed_gateway_leaves_no_gap_and_nothing_twice() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let numbers = programs
        .program(&gateway, "numbers", &["writer", "reader"])
        .await
        .env("TOTAL", "600")
        .start();
    for at in [100, 250, 400] {
        numbers.says(&format!("acknowledged {at}\n")).await;
        let address = gateway.address().to_owned();
        gateway.kill().await;
        gateway = Setup::new().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
    }
    let ended = numbers.end().await;
    let said = ended.assert_code(0).stdout.as_str();
    assert!(said.ends_with("all well\n"), "{said}");
    for who in ["writer", "reader"] {
        assert_eq!(said.matches(&format!("{who} reconnected")).count(), 3, "{said}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_byte_leaves_no_gap_and_nothing_twice() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let participants = ["provider", "writer", "reader"];
    let cuts = programs.program(&gateway, "cuts", &participants).await.env("ROUNDS", "20").start();
    for through in [20, 40, 60, 80] {
        cuts.says(&format!("{through} through, ")).await;
    }
    let ended = cuts.end().await;
    assert!(ended.assert_code(0).stdout.ends_with("all well\n"));
    gateway.stop().await;
}

#[tokio::test]
async fn no_call_of_it_is_lost_between_its_arrival_and_its_metadata() {
    let gateway = Setup::new().config(Proxy::CONFIG).spawn(SWITCHBOARD).await;
    let proxy = Proxy::start(gateway.address()).await;
    let programs = Programs::install();
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let worker = programs.program(&gateway, "worker", &["worker"]).await;
    let worker = worker.env("SERVER_URL", proxy.url()).start();
    worker.says("ready as worker").await;
    for round in 0..15 {
        proxy.cut();
        ann.until(|frame| frame["senderId"] == "worker" && frame["payload"]["action"] == "leave")
            .await;
        ann.until(|frame| frame["senderId"] == "worker" && frame["payload"]["action"] == "join")
            .await;
        let call = json!({ "callId": format!("c{round}"), "methodName": "search", "providerId": "worker", "args": { "pattern": ".rs" } });
        ann.publish("method-call", call.clone()).await;
        let wanted = |frame: &Value| {
            frame["type"] == "method-result"
                && frame["payload"]["callId"] == call["callId"]
                && frame["payload"]["complete"] == true
        };
        let result = ann.until(wanted).await;
        assert_eq!(result["payload"]["content"], json!(["c.rs"]), "{result}");
    }
    assert!(proxy.connections() > 15, "{} connections", proxy.connections());
    ann.publish(
        "method-call",
        json!({ "callId": "end", "methodName": "stop", "providerId": "worker", "args": {} }),
    )
    .await;
    worker.end().await.assert_code(0);
    gateway.stop().await;
}

#[tokio::test]
async fn what_others_send_amiss_disturbs_nobody() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let listener = programs.program(&gateway, "listener", &["listener"]).await.start();
    listener.says("listening").await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    let about = json!({ "name": 7, "methods": [{ "name": "odd", "parameters": "none" }, { "name": "x", "timeout": "soon" }] });
    assert_eq!(eve.update(about).await["kind"], "error");
    eve.update(json!({ "name": 7, "methods": [{ "name": "odd", "parameters": "none" }] })).await;
    eve.say(
        "message",
        json!({ "id": "00000000-0000-4000-8000-000000000001", "content": { "not": "text" } }),
    )
    .await;
    eve.say(
        "message",
        json!({ "id": "00000000-0000-4000-8000-000000000002", "content": "x", "at": "everybody" }),
    )
    .await;
    eve.say(
        "update-message",
        json!({ "id": "00000000-0000-4000-8000-000000000002", "complete": "yes" }),
    )
    .await;
    eve.say("execution-pause", json!({ "messageId": "m2", "status": "whatever" })).await;
    eve.say("something-else", json!(["for", "others"])).await;
    assert_eq!(
        eve.say("method-result", json!({ "callId": "none", "content": 1, "complete": true })).await
            ["kind"],
        "error"
    );
    eve.say(
        "message",
        json!({ "id": "00000000-0000-4000-8000-000000000003", "content": "fine", "unknown": { "field": 1 } }),
    )
    .await;
    eve.say("message", json!({ "id": "00000000-0000-4000-8000-000000000004", "content": "stop" }))
        .await;
    let ended = listener.end().await;
    let said: Vec<&str> = ended.assert_code(0).stdout.lines().collect();
    let error = "error receive: ValidationError";
    assert_eq!(
        said,
        ["listening", error, error, error, error, "heard fine from eve", "heard stop from eve"]
    );
    gateway.stop().await;
}
