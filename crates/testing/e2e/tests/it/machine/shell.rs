//! A machine's shell through a gateway streams its output. Every way to end a command reaches all
//! of its processes, and none of them outlives the node.

use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use sa_gateway_kit::{Cli, Gateway, Setup, Started, eventually, soon};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// Child processes that try to escape: in the background, in a new session, and as a daemon that
/// ignores SIGTERM.
const FAMILY: &str = r#"
sleep 1000 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'trap "" TERM HUP; (sh -c "echo \$\$ >> pids; exec sleep 1000" </dev/null >/dev/null 2>&1 &)' &)
echo $$ >> pids; sleep 1000"#;

struct Laptop {
    gateway: Gateway,
    node: Started,
    workspace: PathBuf,
    _dir: TempDir,
}

impl Laptop {
    async fn new(flags: &[&str]) -> Self {
        let gateway = Setup::new().env("SA_NODE_TOKEN", "geheim").spawn(SWITCHBOARD).await;
        let dir = tempfile::tempdir().unwrap();
        let (workspace, home) = (dir.path().join("workspace"), dir.path().join("home"));
        std::fs::create_dir(&workspace).unwrap();
        std::fs::create_dir(&home).unwrap();
        let url = gateway.nodes_url();
        let node = Cli::new(SWITCHBOARD)
            .args(&[
                "node",
                "--gateway",
                &url,
                "--id",
                "laptop",
                "--workspace",
                workspace.to_str().unwrap(),
            ])
            .args(flags)
            .env("SA_NODE_TOKEN", "geheim")
            .env("SHELL", "/bin/bash")
            .env("HOME", home.to_str().unwrap())
            .start();
        let laptop = Self { gateway, node, workspace, _dir: dir };
        laptop.connected().await;
        laptop
    }

    async fn connected(&self) {
        eventually("the tools", || async {
            let names = self.gateway.operator().tool_names().await;
            names.contains(&"laptop__Bash".to_owned()).then_some(())
        })
        .await;
    }

    async fn bash(&self, command: &str) -> Value {
        self.gateway.operator().call("laptop__Bash", json!({ "command": command })).await.result()
    }

    async fn background(&self, command: &str) -> String {
        let args = json!({ "command": command, "background": true });
        let result = self.gateway.operator().call("laptop__Bash", args).await.result();
        result["sessionId"].as_str().unwrap().to_owned()
    }

    async fn process(&self, action: &str, session: &str) -> Value {
        let args = json!({ "action": action, "sessionId": session });
        self.gateway.operator().call("laptop__Process", args).await.result()
    }

    /// Returns the number of processes that belong to the node's commands.
    fn commands(&self) -> usize {
        commands_in(&self.workspace)
    }

    /// Waits until this number of processes has written their ids.
    async fn pids(&self, count: usize) -> Vec<i32> {
        eventually("the processes", || async {
            let text = std::fs::read_to_string(self.workspace.join("pids")).unwrap_or_default();
            let pids: Vec<i32> = text
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
                .collect();
            (pids.len() >= count).then_some(pids)
        })
        .await
    }
}

/// Counts the processes that run commands of a workspace. In a sandbox, the processes do not know
/// their real ids.
fn commands_in(workspace: &Path) -> usize {
    let directory = format!("PWD={}", workspace.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let environments =
        processes.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments
        .filter(|text| {
            text.split(|byte| *byte == 0).any(|variable| variable == directory.as_bytes())
        })
        .count()
}

async fn all_gone(pids: Vec<i32>) {
    for pid in pids {
        let waiting = tokio::task::spawn_blocking(move || {
            let Ok(handle) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else {
                return;
            };
            let timeout = sa_gateway_kit::TIMEOUT.try_into().unwrap();
            let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)).unwrap();
            assert_eq!(ended, 1, "process {pid} lives on");
        });
        soon(waiting).await.unwrap();
    }
}

#[tokio::test]
async fn background_commands_belong_to_the_principal_that_started_them() {
    let laptop = Laptop::new(&[]).await;
    let (anna, ben) =
        (laptop.gateway.new_agent("anna").await, laptop.gateway.new_agent("ben").await);
    let args = json!({ "command": "echo started; read line; echo got $line", "background": true });
    let started = anna.call("laptop__Bash", args).await.result();
    let session = started["sessionId"].as_str().unwrap();
    let list = json!({ "action": "list" });
    assert_eq!(ben.call("laptop__Process", list.clone()).await.result()["count"], 0);
    for action in ["poll", "log", "write", "submit", "kill"] {
        let reply =
            ben.call("laptop__Process", json!({ "action": action, "sessionId": session })).await;
        assert_eq!(reply.body["kind"], "not_found", "{action}: {}", reply.text);
    }
    assert_eq!(anna.call("laptop__Process", list.clone()).await.result()["count"], 1);
    assert_eq!(laptop.gateway.operator().call("laptop__Process", list).await.result()["count"], 1);
    let submit = json!({ "action": "submit", "sessionId": session, "data": "it" });
    anna.call("laptop__Process", submit).await.result();
    eventually("its end", || async {
        let poll = laptop.process("poll", session).await;
        (poll["tail"] == "started\ngot it\n").then_some(())
    })
    .await;
}

#[tokio::test]
async fn output_comes_while_it_is_written() {
    let laptop = Laptop::new(&[]).await;
    let body = json!({ "args": { "command": "echo first; until [ -e go ]; do sleep 0.01; done; echo second" } });
    let mut events = laptop.gateway.operator().stream("laptop__Bash", body).await;
    assert_eq!(events.wait_for("chunk").await["content"], "first\n");
    std::fs::write(laptop.workspace.join("go"), "").unwrap();
    assert_eq!(events.wait_for("chunk").await["content"], "second\n");
    let done = events.wait_for("done").await;
    assert_eq!(
        (&done["result"]["output"], &done["result"]["status"]),
        (&json!("first\nsecond\n"), &json!("completed"))
    );
}

#[tokio::test]
async fn a_command_that_is_silent_says_that_it_lives_and_ends_with_its_caller() {
    let laptop = Laptop::new(&[]).await;
    let body = json!({ "args": { "command": FAMILY } });
    let mut events = laptop.gateway.operator().stream("laptop__Bash", body).await;
    let progress = events.wait_for("progress").await;
    assert!(progress["message"].as_str().unwrap().starts_with("running for "), "{progress}");
    let pids = laptop.pids(4).await;
    drop(events);
    all_gone(pids).await;
}

/// Prints output every 100 ms, which counts as progress.
const TALKATIVE: &str = "echo $$ >> pids; while :; do echo tick; sleep 0.1; done";

#[tokio::test]
async fn a_callers_time_limit_is_hard_though_the_command_reports_progress() {
    let laptop = Laptop::new(&[]).await;
    let operator = laptop.gateway.operator();
    let limit = 1_500;
    let args = json!({ "command": TALKATIVE });
    let reply =
        soon(operator.call_with("laptop__Bash", json!({ "args": args, "timeout_ms": limit })))
            .await;
    reply.assert_problem(504, "timeout");
    let invoked = json!({ "tool": "laptop__Bash", "args": args, "timeout_ms": limit, "idle_timeout_ms": 60_000 });
    soon(operator.post("/v1/tools/invoke", &invoked)).await.assert_problem(504, "timeout");
    let mut socket = operator.socket().await;
    let call = json!({ "type": "call", "id": "1", "tool": "laptop__Bash", "args": args, "timeout_ms": limit });
    socket.send(call).await;
    assert_eq!(soon(socket.wait_for("error", "1")).await["kind"], "timeout");
    all_gone(laptop.pids(3).await).await;
    // A timeout that progress restarts does not end a command with a longer total time.
    let talks = json!({ "command": "for i in $(seq 25); do echo tick; sleep 0.1; done" });
    let reply = operator
        .call_with("laptop__Bash", json!({ "args": talks, "idle_timeout_ms": limit }))
        .await;
    assert_eq!(reply.result()["status"], "completed");
}

#[tokio::test]
async fn a_cancel_reaches_all() {
    let laptop = Laptop::new(&[]).await;
    let operator = laptop.gateway.operator();
    let mut events =
        operator.stream("laptop__Bash", json!({ "args": { "command": FAMILY } })).await;
    let pids = laptop.pids(4).await;
    operator.delete(&format!("/v1/calls/{}", events.call_id())).await;
    assert_eq!(events.wait_for("error").await["kind"], "cancelled");
    all_gone(pids).await;
}

#[tokio::test]
async fn a_node_that_is_killed_leaves_nothing() {
    let laptop = Laptop::new(&[]).await;
    laptop.background(FAMILY).await;
    let pids = laptop.pids(4).await;
    laptop.node.signal(Signal::KILL);
    all_gone(pids).await;
}

#[tokio::test]
async fn a_node_that_is_killed_wakes_supervisors_that_were_stopped() {
    let laptop = Laptop::new(&[]).await;
    laptop.background(&format!("echo $PPID >> pids; kill -STOP $PPID; {FAMILY}")).await;
    let pids = laptop.pids(5).await;
    laptop.node.signal(Signal::KILL);
    all_gone(pids).await;
}

#[tokio::test]
async fn the_directories_of_a_node_that_is_killed_go_with_its_commands() {
    let laptop = Laptop::new(&["--sandbox"]).await;
    laptop.background("echo $HOME > home; sleep 1000").await;
    laptop.background(FAMILY).await;
    laptop.pids(4).await;
    assert!(laptop.commands() >= 5, "{}", laptop.commands());
    let home = eventually("a home", || async {
        std::fs::read_to_string(laptop.workspace.join("home"))
            .ok()
            .filter(|home| home.ends_with('\n'))
    })
    .await;
    let all = std::path::Path::new(home.trim()).parent().unwrap();
    assert!(
        all.file_name().unwrap().to_str().unwrap().starts_with("switchboard-command-")
            && all.exists()
    );
    laptop.node.signal(Signal::KILL);
    eventually("their end", || async { (laptop.commands() == 0).then_some(()) }).await;
    eventually("their directories' end", || async { (!all.exists()).then_some(()) }).await;
}

#[tokio::test]
async fn a_node_that_is_asked_to_go_leaves_nothing() {
    let laptop = Laptop::new(&["--sandbox"]).await;
    laptop.background(FAMILY).await;
    let home = laptop.bash("echo $HOME").await["output"].as_str().unwrap().trim().to_owned();
    laptop.pids(4).await;
    assert!(laptop.commands() >= 4, "{}", laptop.commands());
    laptop.node.signal(Signal::TERM);
    let Laptop { node, workspace, .. } = laptop;
    node.end().await.assert_code(0);
    // The kernel ends them with their supervisor, possibly a moment after the node.
    eventually("their end", || async { (commands_in(&workspace) == 0).then_some(()) }).await;
    assert!(!std::path::Path::new(&home).exists());
}

#[tokio::test]
async fn the_background_outlives_the_gateway_and_the_foreground_does_not() {
    let mut laptop = Laptop::new(&[]).await;
    let session = laptop.background("read line; echo $line").await;
    let call = laptop
        .gateway
        .operator()
        .call_later("laptop__Bash", json!({ "args": { "command": FAMILY } }));
    let pids = laptop.pids(4).await;
    let address = laptop.gateway.address().to_owned();
    laptop.gateway.kill().await;
    call.abort();
    all_gone(pids).await;
    let again = Setup::new().env("SA_NODE_TOKEN", "geheim").on(&laptop.gateway).at(&address);
    laptop.gateway = again.spawn(SWITCHBOARD).await;
    laptop.connected().await;
    let args = json!({ "action": "submit", "sessionId": session, "data": "still here" });
    laptop.gateway.operator().call("laptop__Process", args).await.result();
    eventually("its end", || async {
        let poll = laptop.process("poll", &session).await;
        (poll["running"] == false).then(|| assert_eq!(poll["tail"], "still here\n"))
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_output_holds_nobody() {
    let laptop = Laptop::new(&[]).await;
    let flood = "head -c 67108864 /dev/zero | tr '\\0' y; printf END; touch done";
    // The test does not read this stream.
    let unread = laptop
        .gateway
        .operator()
        .stream("laptop__Bash", json!({ "args": { "command": flood } }))
        .await;
    eventually("the command's end", || async {
        laptop.workspace.join("done").exists().then_some(())
    })
    .await;
    drop(unread);
    let mut events = laptop
        .gateway
        .operator()
        .stream("laptop__Bash", json!({ "args": { "command": flood } }))
        .await;
    let mut shown = 0;
    let done = loop {
        let (name, data) = events.next().await.unwrap();
        match name.as_str() {
            "chunk" => shown += data["content"].as_str().unwrap().len(),
            "done" => break data,
            _ => {}
        }
    };
    assert!(done["result"]["output"].as_str().unwrap().ends_with("yEND"));
    assert_eq!(done["result"]["truncated"], true);
    assert!(shown < 32 << 20, "{shown} bytes were streamed");
}

#[tokio::test]
async fn the_token_is_in_no_command() {
    let laptop = Laptop::new(&[]).await;
    let look = "env; for up in $$ $PPID; do tr '\\0' '\\n' < /proc/$up/environ; tr '\\0' ' ' < /proc/$up/cmdline; done";
    let result = laptop.bash(look).await;
    assert!(result["output"].as_str().unwrap().contains("SHELL=/bin/bash"), "{result}");
    assert!(!result.to_string().contains("geheim"), "{result}");
}

#[tokio::test]
async fn the_sandbox_is_what_the_flags_say() {
    let laptop = Laptop::new(&["--sandbox", "--no-network", "--read-only"]).await;
    let tcp = laptop.gateway.address().replace(':', "/");
    // Bash prints the refusal of the socket twice.
    let result = laptop.bash(&format!("touch x; ls -A ~root; echo > /dev/tcp/{tcp}")).await;
    assert_eq!(
        result["output"].as_str().unwrap().matches("ermission denied").count(),
        2,
        "{result}"
    );
    assert_eq!(
        result["output"].as_str().unwrap().matches("Read-only file system").count(),
        1,
        "{result}"
    );
    let names = laptop.gateway.operator().tool_names().await;
    assert!(names.contains(&"laptop__Process".to_owned()), "{names:?}");
}

#[tokio::test]
async fn flags_that_make_no_sense_are_refused() {
    let node = ["node", "--id", "laptop", "--workspace", "/"];
    let ended = Cli::new(SWITCHBOARD).args(&node).args(&["--no-network"]).run().await;
    assert!(ended.assert_code(2).stderr.contains("--sandbox"), "{}", ended.stderr);
}
