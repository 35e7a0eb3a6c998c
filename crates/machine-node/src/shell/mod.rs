//! Bash and Process: commands, in the foreground and in the background.
//!
//! What is left running when a command's shell ends is ended with it (SIGTERM, and SIGKILL after 250 ms): a call never
//! hangs because something that it started in passing still holds its output, and nothing outlives its session. What is
//! to go on is run with `background`.

mod arguments;
mod bash;
mod environment;
mod input;
pub(crate) mod keeper;
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

/// How long the commands that still run have to be gone when the node goes.
const FAREWELL: Duration = Duration::from_secs(5);

pub(crate) fn register(machine: &Machine, tools: &mut ToolRegistry) {
    if let Some(shell) = machine.shell() {
        tolerant::register(tools, "Bash", bash::Bash { shell: Arc::clone(shell) });
        tolerant::register(tools, "Process", process::Process { shell: Arc::clone(shell) });
    }
}

/// The machine's shell, and the sessions in it.
#[derive(Debug)]
pub(crate) struct Shell {
    workspace: PathBuf,
    program: String,
    environment: Vec<(OsString, OsString)>,
    keeper: PathBuf,
    /// Whether the keeper is this very program, which has to be ready for that.
    keeper_is_self: bool,
    sandbox: Option<Guarded>,
    sessions: Arc<Sessions>,
    events: NodeEvents,
    stop: CancellationToken,
    /// What watches over the commands that run.
    runners: TaskTracker,
}

impl Shell {
    /// The shell that the options ask for; none where nothing may be written and nothing holds commands back.
    pub(crate) fn new(options: &Options, events: NodeEvents) -> Result<Option<Arc<Self>>, StartError> {
        if options.read_only && options.sandbox.is_none() {
            return Ok(None);
        }
        let keeper_is_self = options.keeper.is_none();
        let keeper = options.keeper.clone().unwrap_or_else(|| "/proc/self/exe".into());
        let given = options.environment.0.clone();
        let variable = |wanted: &str| given.iter().rfind(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        let program = environment::login_shell(variable("SHELL").as_deref());
        let home = variable("HOME").map(PathBuf::from);
        let (sandbox, environment) = match options.sandbox {
            None => (None, environment::of_the_user(given)),
            Some(wanted) => {
                private::remove_abandoned();
                let environment = environment::of_a_sandbox(given);
                let policy = sandboxed::policy(options, wanted, home.as_deref());
                if keeper_is_self && !keeper::prepared() {
                    return Err(StartError::Sandbox { why: UNPREPARED.to_owned() });
                }
                let guarded =
                    Guarded::new(policy.clone(), &options.workspace).map_err(|why| StartError::Secret { why })?;
                sandboxed::check(&keeper, &policy, &options.hidden)?;
                (Some(guarded), environment)
            }
        };
        Ok(Some(Arc::new(Self {
            workspace: options.workspace.clone(),
            program,
            environment,
            keeper,
            keeper_is_self,
            sandbox,
            sessions: Arc::default(),
            events,
            stop: CancellationToken::new(),
            runners: TaskTracker::new(),
        })))
    }

    /// Kills all that runs, and waits until it is gone.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.runners.close();
        let _ = tokio::time::timeout(FAREWELL, self.runners.wait()).await;
    }

    /// Starts a command and what watches over it.
    async fn start(self: &Arc<Self>, plan: launch::Plan, timeout: Option<Duration>) -> Result<Arc<Session>, ToolError> {
        if self.stop.is_cancelled() {
            return Err(ToolError::Cancelled("the node is going away".to_owned()));
        }
        if self.keeper_is_self && !keeper::prepared() {
            return Err(ToolError::Failed(UNPREPARED.to_owned()));
        }
        runner::start(self, plan, timeout).await
    }
}

const UNPREPARED: &str = "this program cannot keep commands: it has to call sa_node::keeper::run_if_asked() first thing \
in main, or name another program in Options::keeper";

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
