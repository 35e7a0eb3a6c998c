//! Bash and Process: commands in the foreground and in the background.
//!
//! When a command's shell ends, its remaining processes are ended (SIGTERM, then SIGKILL after 250
//! ms). So a call never hangs because a leftover process still holds its output, and nothing
//! outlives its session. Commands that should continue are run with `background`.

mod arguments;
mod bash;
mod environment;
mod input;
mod launch;
mod live;
mod marked;
mod orphans;
mod output;
mod private;
mod process;
mod runner;
mod sandboxed;
mod session;
mod sessions;
mod signals;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{NodeEvents, ToolError, ToolRegistry};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::marked::Guarded;
use self::session::Session;
use self::sessions::Sessions;
use crate::machine::{Machine, Options, StartError};
use crate::tolerant;

/// The time that running commands have to end when the node shuts down.
const FAREWELL: Duration = Duration::from_secs(5);

pub(crate) fn register(machine: &Machine, tools: &mut ToolRegistry) {
    if let Some(shell) = machine.shell() {
        tolerant::register(tools, "Bash", bash::Bash { shell: Arc::clone(shell) });
        tolerant::register(tools, "Process", process::Process { shell: Arc::clone(shell) });
    }
}

/// The machine's shell, and its sessions.
#[derive(Debug)]
pub(crate) struct Shell {
    workspace: PathBuf,
    program: String,
    environment: Vec<(OsString, OsString)>,
    /// The program that supervises commands. `None` is this program itself.
    supervisor: Option<PathBuf>,
    sandbox: Option<Guarded>,
    sessions: Arc<Sessions>,
    events: NodeEvents,
    stop: CancellationToken,
    /// The tasks that supervise running commands.
    runners: TaskTracker,
}

impl Shell {
    /// Creates the shell for these options. Returns `None` if writing is forbidden and there is no
    /// sandbox.
    pub(crate) fn new(
        options: &Options,
        events: NodeEvents,
    ) -> Result<Option<Arc<Self>>, StartError> {
        if options.read_only && options.sandbox.is_none() {
            return Ok(None);
        }
        let given = options.environment.0.clone();
        let program = environment::login_shell(options.variable("SHELL").as_deref());
        let (sandbox, environment) = match options.sandbox {
            None => (None, environment::of_the_user(given)),
            Some(wanted) => {
                private::remove_abandoned();
                let environment = environment::of_a_sandbox(given);
                let policy = sandboxed::policy(options, wanted);
                let supervisor = match &options.supervisor {
                    Some(program) => program,
                    None => sa_process::program()
                        .map_err(|error| StartError::Sandbox { why: error.to_string() })?,
                };
                let guarded = Guarded::new(policy.clone(), &options.workspace)
                    .map_err(|why| StartError::Secret { why })?;
                sandboxed::check(supervisor, &policy, &options.hidden)?;
                (Some(guarded), environment)
            }
        };
        Ok(Some(Arc::new(Self {
            workspace: options.workspace.clone(),
            program,
            environment,
            supervisor: options.supervisor.clone(),
            sandbox,
            sessions: Arc::default(),
            events,
            stop: CancellationToken::new(),
            runners: TaskTracker::new(),
        })))
    }

    /// Kills all running commands, and waits until they have ended.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.runners.close();
        let _ = tokio::time::timeout(FAREWELL, self.runners.wait()).await;
    }

    /// Starts a command and the task that supervises it.
    async fn start(
        self: &Arc<Self>,
        plan: launch::Plan,
        timeout: Option<Duration>,
    ) -> Result<Arc<Session>, ToolError> {
        if self.stop.is_cancelled() {
            return Err(ToolError::Cancelled("the node is shutting down".to_owned()));
        }
        runner::start(self, plan, timeout).await
    }
}

/// Returns milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
