//! A machine in a temporary directory. Its tools are called without a gateway.

mod schema;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sa_node::{Machine, Options};
use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolRegistry};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The time limit of every wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The supervisor program in a directory that every user can read.
const SUPERVISOR: &str = "SA_TEST_SUPERVISOR";

/// Returns the supervisor program.
pub(crate) fn supervisor() -> PathBuf {
    let own = || env!("CARGO_BIN_EXE_sa-node-supervisor").into();
    std::env::var_os(SUPERVISOR).unwrap_or_else(own).into()
}

/// Runs the other tests of a module again as an unprivileged user, if this user is root. The whole
/// node then has no privileges. The name of the calling test must contain `unprivileged_user`.
#[track_caller]
pub(crate) fn repeat_as_nobody(module: &str) {
    sa_test_needs::repeat_as_nobody(module, &[(SUPERVISOR, &supervisor())]);
}

pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) machine: Machine,
    pub(crate) tools: ToolRegistry,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let mut options = Options::new(&workspace);
        // A developer's own profile must not affect the tests.
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let variables = [
            ("PATH", path),
            ("HOME", home.into()),
            ("SHELL", "/bin/bash".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ];
        options.environment.0 = variables.map(|(name, value)| (name.into(), value)).into();
        options.supervisor = Some(supervisor());
        change(&mut options);
        let machine = Machine::new(options).unwrap();
        let mut tools = ToolRegistry::new();
        machine.register(&mut tools);
        Self { dir, machine, tools }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("workspace")
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn NodeTool> {
        self.tools.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    pub(crate) async fn try_call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        soon(called(self.tool(tool), ToolContext::for_test(tool), args)).await
    }

    pub(crate) async fn call(&self, tool: &str, args: Value) -> Value {
        self.try_call(tool, args).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a command to its end.
    pub(crate) async fn bash(&self, command: &str) -> Value {
        self.call("Bash", json!({ "command": command })).await
    }

    /// Runs a command in the background and returns its session's id.
    pub(crate) async fn background(&self, command: &str) -> String {
        let started = self.call("Bash", json!({ "command": command, "background": true })).await;
        assert_eq!(started["status"], "running");
        started["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn process(&self, action: &str, session: &str) -> Value {
        self.call("Process", json!({ "action": action, "sessionId": session })).await
    }

    /// Waits until a session has ended, and returns the result of `poll`.
    pub(crate) async fn ended(&self, session: &str) -> Value {
        eventually("its end", || async {
            Some(self.process("poll", session).await).filter(|poll| poll["running"] == false)
        })
        .await
    }

    /// Waits until a session has written this text.
    pub(crate) async fn says(&self, session: &str, words: &str) -> String {
        eventually(words, || async {
            let poll = self.process("poll", session).await;
            Some(poll["tail"].as_str().unwrap().to_owned()).filter(|tail| tail.contains(words))
        })
        .await
    }

    /// Calls Bash and returns its cancellation token.
    pub(crate) fn cancellable(
        &self,
        args: Value,
    ) -> (CancellationToken, tokio::task::JoinHandle<Result<Value, ToolError>>) {
        let ctx = ToolContext::for_test("Bash");
        let (cancel, tool) = (ctx.cancel.clone(), self.tool("Bash"));
        (cancel, tokio::spawn(called(tool, ctx, args)))
    }

    /// Runs a command with a timeout that fires as soon as the command has written its process
    /// numbers to `pids`.
    pub(crate) async fn time_out(&self, command: &str, count: usize) -> (Value, Vec<i32>) {
        let timeout = Duration::from_secs(3600);
        let millis = u64::try_from(timeout.as_millis()).unwrap();
        let (_, mut call) = self.cancellable(json!({ "command": command, "timeout": millis }));
        let pids = self.pids("pids", count).await;
        // The command may be faster than the node, which sets its timer when the command runs.
        for _ in 0..3 {
            later(timeout).await;
            if let Ok(ended) = tokio::time::timeout(TIMEOUT / 4, &mut call).await {
                return (ended.unwrap().unwrap(), pids);
            }
        }
        (soon(call).await.unwrap().unwrap(), pids)
    }

    /// Waits until a command has written process numbers to a file of the workspace.
    pub(crate) async fn pids(&self, file: &str, count: usize) -> Vec<i32> {
        pids(&self.workspace().join(file), count).await
    }
}

/// Calls a tool, and checks the schema of its result.
async fn called(
    tool: Arc<dyn NodeTool>,
    ctx: ToolContext,
    args: Value,
) -> Result<Value, ToolError> {
    let result = tool.call(ctx, args).await?;
    schema::check(&*tool, &result);
    Ok(result)
}

/// Waits until a file contains this number of process numbers, one per line.
pub(crate) async fn pids(file: &Path, count: usize) -> Vec<i32> {
    eventually("the processes", || async {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<i32> = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
            .collect();
        (pids.len() >= count).then_some(pids)
    })
    .await
}

/// Waits until a process has ended, or is a zombie that only its parent can reap.
pub(crate) async fn gone(pid: i32) {
    let waiting = tokio::task::spawn_blocking(move || {
        let Ok(handle) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else {
            return;
        };
        let timeout = TIMEOUT.try_into().unwrap();
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ended, 1, "process {pid} lives on");
    });
    soon(waiting).await.unwrap();
}

/// Advances the clock of this runtime. Other processes are not affected.
pub(crate) async fn later(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what).await.expect("this never happened")
}

pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(tokio::time::Instant::now() < until, "never saw {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
