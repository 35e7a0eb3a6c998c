//! An agent that the gateway starts for a session can call its caller's tools from inside a
//! sandbox. It ends with its session and its gateway, whatever the cause.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use sa_gateway_kit::{Agent, Events, Gateway, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

const AGENT: &str = env!("CARGO_BIN_EXE_e2e-relay-agent");

/// A gateway with two agents: the same program, with and without a sandbox.
pub(crate) fn setup() -> Setup {
    setup_with(Path::new(AGENT))
}

fn setup_with(agent: &Path) -> Setup {
    let (dir, agent) = (agent.parent().unwrap().display(), agent.display());
    Setup::new().config(&format!(
        r#"
[sessions]
caller_grace_ms = 100
default_agent = "boxed"
[sessions.agents.boxed]
command = ["{agent}"]
sandbox = true
read = ["{dir}"]
[sessions.agents.free]
command = ["{agent}"]
[sessions.agents.oneshot]
command = ["sh", "-c", "read word; echo got $word; echo $SA_SECRET; exit 3"]
input = "text"
[sessions.agents.diary]
command = ["sh", "-c", "cat >> diary; echo wrote $(cat diary) in $PWD"]
input = "text"
[sessions.agents.broken]
command = ["/nonexistent/program"]
[sessions.agents.seeker]
command = ["sh", "-c", "command -v switchboard"]
input = "text"
sandbox = true
[sessions.agents.shell]
command = ["bash"]
input = "text"
sandbox = true
network = false
[sessions.agents.hidden]
command = ["{agent}"]
sandbox = true
"#
    ))
}

/// A user and a group that own nothing.
const NOBODY: u32 = 65534;

/// Starts a gateway as this user and, if this user is root, one as an unprivileged user.
async fn gateways() -> Vec<Gateway> {
    let mut gateways = vec![setup().spawn(SWITCHBOARD).await];
    if rustix::process::geteuid().is_root() {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        // The build directory may be inaccessible to other users.
        let programs = dir.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let run = programs.join("run");
        let script = format!(
            "#!/bin/sh\nexec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {}/switchboard \"$@\"\n",
            programs.display()
        );
        std::fs::write(&run, script).unwrap();
        std::fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
        for (program, name) in [(SWITCHBOARD, "switchboard"), (AGENT, "agent")] {
            std::fs::copy(program, programs.join(name)).unwrap();
        }
        let setup = setup_with(&programs.join("agent")).in_dir(&dir);
        let gateway = setup.spawn(run.to_str().unwrap()).await;
        let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
        assert!(status.contains(&format!("Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}")), "{status}");
        gateways.push(gateway);
    }
    gateways
}

struct Work {
    caller: Agent,
    session: Value,
    events: Events,
}

impl Work {
    async fn start(caller: &Agent, agent: &str) -> Self {
        let tools = json!([
            { "name": "recall", "description": "Remembers" },
            { "name": "send", "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] } },
        ]);
        let body =
            json!({ "message": "list", "agent": agent, "caller_id": "ant", "caller_tools": tools });
        let reply = caller.post("/v1/sessions", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        let events = caller
            .events(&format!(
                "/v1/sessions/{}/events?since=0",
                reply.body["session_id"].as_str().unwrap()
            ))
            .await;
        let mut work = Self { caller: caller.clone(), session: reply.body, events };
        assert_eq!(work.said("tools").await, "ant_recall ant_send session_events session_message");
        work
    }

    fn path(&self, below: &str) -> String {
        format!("/v1/sessions/{}{below}", self.session["session_id"].as_str().unwrap())
    }

    async fn order(&self, message: &str) {
        let body = json!({ "session_id": self.session["session_id"], "message": message });
        let reply = self.caller.post("/v1/sessions", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }

    /// Returns the rest of the agent's next line that begins with this word.
    async fn said(&mut self, word: &str) -> String {
        loop {
            let line = self.events.wait_for("output").await;
            let line = line["text"].as_str().unwrap().to_owned();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    async fn request(&mut self) -> Value {
        self.events.wait_for("caller_tool_request").await
    }

    async fn answer(&self, request: &Value, answer: Value) {
        let mut body = json!({ "request_id": request["request_id"] });
        body.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        assert_eq!(self.caller.post(&self.path("/responses"), &body).await.status, 202);
    }
}

fn is_alive(pid: &str) -> bool {
    // A zombie process counts as dead.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn an_agent_in_a_sandbox_uses_its_callers_tools() {
    for gateway in gateways().await {
        let mut work = Work::start(&gateway.new_agent("ant").await, "boxed").await;
        work.order(r#"call ant_send {"text":"hi"}"#).await;
        let request = work.request().await;
        assert_eq!(request["arguments"], json!({ "text": "hi" }));
        work.answer(&request, json!({ "result": "sent" })).await;
        assert_eq!(work.said("ok").await, "sent");
        // Errors are passed on, and wrong arguments never reach the caller.
        work.order("call ant_recall {}").await;
        let request = work.request().await;
        work.answer(&request, json!({ "error": "no memory" })).await;
        assert_eq!(work.said("error").await, "failed: no memory");
        work.order("call ant_send {}").await;
        assert_eq!(work.said("error").await, "invalid_args: missing \"text\" (string)");
        // Concurrent calls, answered in reverse order.
        work.order("all ant_recall 8").await;
        let mut requests = Vec::new();
        for _ in 0..8 {
            requests.push(work.request().await);
        }
        for request in requests.iter().rev() {
            work.answer(request, json!({ "result": format!("n{}", request["arguments"]["n"]) }))
                .await;
        }
        assert_eq!(work.said("ok n0").await, ",ok n1,ok n2,ok n3,ok n4,ok n5,ok n6,ok n7");
        // Tools can change while the agent runs.
        work.order("follow").await;
        let change = json!({ "session_id": work.session["session_id"], "caller_tools": [{ "name": "ring" }] });
        assert_eq!(work.caller.post("/v1/sessions", &change).await.status, 200);
        assert_eq!(work.said("tools").await, "ant_ring session_events session_message");
    }
}

#[tokio::test]
async fn a_sandbox_hides_what_is_not_the_agents() {
    for gateway in gateways().await {
        let mut work = Work::start(&gateway.new_agent("ant").await, "boxed").await;
        let token = gateway.data_dir().join("operator.token");
        for (path, expected) in [
            (token.display().to_string(), "false"),
            ("/usr/bin/env".into(), "true"),
            ("/sys/kernel".into(), "false"),
        ] {
            work.order(&format!("exists {path}")).await;
            assert_eq!(work.said(&path).await, expected, "{path}");
        }
    }
}

/// Attacks of a hostile agent. The gateway may run as root.
const ATTACKS: [&str; 12] = [
    "cat TOKEN",
    "ls DATA | grep -v relay",
    "cat /etc/shadow",
    "ls /root/.[a-z]*",
    "mknod disk b 254 0",
    "mount -t tmpfs none /tmp",
    "mount --bind / /tmp",
    "touch /usr/switchboard-was-here",
    "unshare -Ur true",
    "kill -0 GATEWAY",
    "tr '\\0' ' ' < /proc/GATEWAY/cmdline",
    "perl -e '$r = shmget(1, 16, 01666); defined $r or die'",
];

#[tokio::test]
async fn an_agent_in_a_sandbox_does_not_get_out_of_it() {
    for gateway in gateways().await {
        let caller = gateway.new_agent("ant").await;
        let token = std::fs::read_to_string(gateway.data_dir().join("operator.token")).unwrap();
        let mut script =
            "grep -E '^Cap|NoNewPrivs|Seccomp:' /proc/self/status | cut -f 2 | sort -u | xargs\n"
                .to_owned();
        for (number, attack) in ATTACKS.iter().enumerate() {
            let attack = attack.replace("TOKEN", "DATA/operator.token");
            let attack = attack.replace("DATA", gateway.data_dir().to_str().unwrap());
            let attack = attack.replace("GATEWAY", &gateway.pid().to_string());
            script += &format!("({attack}) && echo 'attack {number} worked'\n");
        }
        let order = json!({ "message": script, "agent": "shell", "wait_ms": 20_000 });
        let answer = caller.post("/v1/sessions", &order).await.body;
        let said = texts(&answer);
        assert!(said.contains(&"0000000000000000 1 2".to_owned()), "{answer}");
        let worked: Vec<&String> = said.iter().filter(|line| line.ends_with("worked")).collect();
        assert!(worked.is_empty(), "{worked:?}: {answer}");
        assert!(!answer.to_string().contains(token.trim()), "{answer}");
        assert!(!Path::new("/usr/switchboard-was-here").exists());
    }
}

#[test]
fn a_gateway_whose_agents_cannot_have_their_sandbox_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "[sessions.agents.boxed]\ncommand = [\"true\"]\nsandbox = true\n")
        .unwrap();
    for (command, word) in [("serve --listen 127.0.0.1:0", "error"), ("doctor", "FIX")] {
        let script =
            format!("echo 0 > /proc/sys/user/max_user_namespaces; exec {SWITCHBOARD} {command}");
        let ran = std::process::Command::new("unshare")
            .args(["-Ur", "sh", "-c", &script])
            .env("SWITCHBOARD_DATA_DIR", dir.path().join("data"))
            .env("SWITCHBOARD_CONFIG", &config)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
        assert!(!ran.status.success(), "{said}");
        assert!(
            said.contains("user namespaces are not available") && said.contains(word),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_caller_that_is_gone_is_an_error_for_the_agent_and_one_that_is_back_is_asked() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let mut work = Work::start(&gateway.new_agent("ant").await, "free").await;
    work.order("call ant_recall {}").await;
    work.request().await;
    let last = work
        .caller
        .call("session_events", json!({ "session_id": work.session["session_id"], "limit": 1000 }))
        .await
        .result()["next"]
        .clone();
    // The caller stops listening, and later listens again.
    work.events = work.caller.events("/healthz").await;
    let offline = eventually("the agent told", || async {
        let query = json!({ "session_id": work.session["session_id"], "since": last });
        // The operator asks, because a request of the caller would count as presence.
        let events = gateway.operator().call("session_events", query).await.result();
        events["events"].as_array()?.iter().find(|event| event["type"] == "output").cloned()
    })
    .await;
    assert!(offline["text"].as_str().unwrap().starts_with("error offline: "), "{offline}");
    work.events = work.caller.events(&work.path("/events")).await;
    work.order("call ant_recall {}").await;
    let request = work.request().await;
    work.answer(&request, json!({ "result": "here" })).await;
    assert_eq!(work.said("ok").await, "here");
}

#[tokio::test]
async fn everything_that_an_agent_started_ends_with_its_session() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let mut work = Work::start(&gateway.new_agent("ant").await, "free").await;
    work.order("stray").await;
    let stray = work.said("stray").await;
    assert!(is_alive(&stray));
    let ended =
        gateway.cli(&["sessions", "end", work.session["session_id"].as_str().unwrap()]).run().await;
    ended.assert_code(0);
    eventually("the stray process dead", || async { (!is_alive(&stray)).then_some(()) }).await;
    eventually("the agent's directory gone", || async {
        let mut left = std::fs::read_dir(gateway.data_dir().join("relay")).unwrap();
        left.next().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn everything_that_an_agent_started_ends_with_a_gateway_that_is_killed() {
    let mut gateway = setup().spawn(SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    let mut free = Work::start(&caller, "free").await;
    free.order("stray").await;
    let stray = free.said("stray").await;
    let boxed = Work::start(&caller, "boxed").await;
    let inside = processes_of(&gateway);
    assert!(inside.len() >= 6, "supervisors, agents, relays: {inside:?}");
    gateway.kill().await;
    for pid in inside.iter().chain([&stray]) {
        eventually("the process dead", || async { (!is_alive(pid)).then_some(()) }).await;
    }
    // The next gateway knows the sessions and reports why they ended.
    let address = gateway.address().to_owned();
    let gateway = setup().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
    for session in [&free, &boxed] {
        let seen = caller.get(&session.path("")).await.body;
        assert_eq!(
            (&seen["state"], &seen["reason"]),
            (&json!("ended"), &json!("the gateway stopped"))
        );
        assert!(seen.get("socket").is_none());
    }
    let mut past = caller.events(&free.path("/events?since=0")).await;
    assert_eq!(past.wait_for("message").await["message"], "list");
    assert_eq!(past.wait_for("session_ended").await["reason"], "the gateway stopped");
    assert_eq!(past.next().await, None);
    let body = json!({ "session_id": free.session["session_id"], "message": "list" });
    caller.post("/v1/sessions", &body).await.assert_problem(409, "conflict");
    // The gateway works.
    let listed = gateway.cli(&["sessions"]).run().await;
    listed.assert_code(0);
    assert!(listed.stdout.contains("ended: the gateway stopped"), "{}", listed.stdout);
    Work::start(&caller, "boxed").await;
    gateway.stop().await;
}

/// Returns all descendant processes of a gateway.
fn processes_of(gateway: &Gateway) -> Vec<String> {
    let mut found = vec![gateway.pid().to_string()];
    let mut at = 0;
    while let Some(pid) = found.get(at).cloned() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().map(str::to_owned));
        }
        at += 1;
    }
    found.split_off(1)
}

/// Returns the command line of a process; the first word is its program.
fn words_of(pid: &str) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[tokio::test]
async fn an_agent_of_which_a_process_was_killed_is_over_and_the_next_message_starts_another() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    for (victim, at) in [(AGENT, 0), ("relay", 1), ("__supervisor", 1)] {
        let mut work = Work::start(&caller, "free").await;
        work.order("call ant_recall {}").await;
        work.request().await;
        let processes = processes_of(&gateway);
        let pid = processes
            .iter()
            .find(|pid| words_of(pid).get(at).is_some_and(|word| word == victim))
            .unwrap();
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        if victim == "relay" {
            work.order("exit").await;
        }
        work.events.wait_for("agent_exited").await;
        eventually("nothing asked any more", || async {
            (work.caller.get(&work.path("")).await.body["pending"] == 0).then_some(())
        })
        .await;
        work.order("list").await;
        assert_eq!(
            work.said("tools").await,
            "ant_recall ant_send session_events session_message",
            "{victim}"
        );
        assert_eq!(caller.delete(&work.path("")).await.status, 200);
        eventually("its processes gone", || async {
            let left = processes_of(&gateway);
            left.iter().all(|pid| words_of(pid)[0] != AGENT).then_some(())
        })
        .await;
    }
}

/// Returns the agent's output lines from an answer.
fn texts(answer: &Value) -> Vec<String> {
    let events =
        answer["events"].as_array().unwrap().iter().filter(|event| event["type"] == "output");
    events.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_program_that_answers_once_is_started_for_each_message() {
    let gateway = setup().env("SA_SECRET", "not-for-agents").spawn(SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    let ask = |message: &str, id: &Value| {
        let body =
            json!({ "message": message, "agent": "oneshot", "session_id": id, "wait_ms": 20_000 });
        let caller = caller.clone();
        async move { caller.post("/v1/sessions", &body).await.body }
    };
    let first = ask("one", &Value::Null).await;
    assert_eq!(
        (&first["state"], texts(&first)),
        (&json!("idle"), vec!["got one".to_owned(), String::new()]),
        "{first}"
    );
    let exited = first["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&exited["type"], &exited["code"]), (&json!("agent_exited"), &json!(3)));
    let second = ask("two", &first["session_id"]).await;
    assert!(texts(&second).contains(&"got two".to_owned()), "{second}");
    // If an agent cannot be started, its output is the error.
    let broken = json!({ "message": "x", "agent": "broken", "wait_ms": 20_000 });
    let broken = caller.post("/v1/sessions", &broken).await.body;
    assert!(texts(&broken)[0].starts_with("cannot start /nonexistent/program"), "{broken}");
    let nobody = json!({ "message": "x", "agent": "nobody" });
    caller.post("/v1/sessions", &nobody).await.assert_problem(422, "invalid_args");
}

#[tokio::test]
async fn what_an_agent_leaves_in_its_directory_is_there_for_the_next_and_goes_with_the_session() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    let (mut session, mut dir) = (Value::Null, String::new());
    for (message, written) in [("one ", "wrote one in "), ("two ", "wrote one two in ")] {
        let body = json!({ "message": message, "agent": "diary", "session_id": session, "wait_ms": 20_000 });
        let answer = caller.post("/v1/sessions", &body).await.body;
        let said = texts(&answer);
        dir = said[0].strip_prefix(written).unwrap_or_else(|| panic!("{answer}")).to_owned();
        assert!(Path::new(&dir).join("diary").exists(), "{dir}");
        session = answer["session_id"].clone();
    }
    assert_eq!(
        caller.delete(&format!("/v1/sessions/{}", session.as_str().unwrap())).await.status,
        200
    );
    assert!(!Path::new(&dir).exists(), "{dir}");
}

#[tokio::test]
async fn a_sandbox_has_the_relay_by_its_name_and_says_which_program_it_does_not_see() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let caller = gateway.new_agent("ant").await;
    let seeker = json!({ "message": "x", "agent": "seeker", "wait_ms": 20_000 });
    let seeker = caller.post("/v1/sessions", &seeker).await.body;
    assert!(texts(&seeker).contains(&"/run/switchboard/switchboard".to_owned()), "{seeker}");
    let hidden = caller.post("/v1/sessions", &json!({ "message": "x", "agent": "hidden" })).await;
    let folder = Path::new(AGENT).parent().unwrap().display();
    assert!(hidden.text.contains(&format!(r#"add read = [\"{folder}\"]"#)), "{}", hidden.text);
}
