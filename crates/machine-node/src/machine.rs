//! A machine, and the operations that are allowed on it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sa_node_sdk::{NodeEvents, ToolRegistry};

use crate::shell::Shell;
use crate::{files, shell};

/// The operations that are allowed on a machine, and their location.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The base of relative paths, and the working directory of commands.
    pub workspace: PathBuf,
    /// The directories that the file tools may use. If empty: the workspace with a sandbox,
    /// otherwise every path that the user may access.
    pub allow_roots: Vec<PathBuf>,
    /// Whether writing is forbidden: no `Write`, no `Edit`, and no `Bash` outside a sandbox.
    pub read_only: bool,
    /// Files that no tool may read: the node's own token and configuration.
    pub hidden: Vec<PathBuf>,
    /// The sandbox for commands. If `None`, commands may do everything that the user may.
    pub sandbox: Option<Sandbox>,
    /// The environment of commands. The node's own variables are removed from it.
    pub environment: Environment,
    /// The program that supervises commands, if it is not this one: see
    /// [`supervisor`](crate::supervisor).
    pub supervisor: Option<PathBuf>,
}

/// Names and values of variables. The `Debug` output contains only the names.
#[derive(Clone, Default)]
pub struct Environment(pub Vec<(OsString, OsString)>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Rights of a sandboxed command beyond reading the system's files and writing to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// Whether it may use the network.
    pub network: bool,
}

impl Options {
    /// Creates the options of a machine on which the tools may do everything that its user may.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            allow_roots: Vec::new(),
            read_only: false,
            hidden: Vec::new(),
            sandbox: None,
            environment: Environment(std::env::vars_os().collect()),
            supervisor: None,
        }
    }

    /// Returns a variable of the environment.
    pub(crate) fn variable(&self, wanted: &str) -> Option<OsString> {
        let found = self.environment.0.iter().rfind(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone())
    }

    /// Returns the home of the user.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }
}

/// The reason why a machine cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A directory in the options cannot be used.
    #[error("{what} {path:?} cannot be used: {error}")]
    Directory {
        /// The option.
        what: &'static str,
        /// The path, as it was given.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The sandbox is not possible here. Without it no tool is offered.
    #[error("commands cannot be run in a sandbox: {why}")]
    Sandbox {
        /// The missing requirement.
        why: String,
    },
    /// A secret of the node would be visible in the sandbox.
    #[error("commands cannot be run in a sandbox: {why}")]
    Secret {
        /// The secret, and the reason.
        why: String,
    },
}

/// A machine that offers its shell and files as tools.
#[derive(Clone)]
pub struct Machine {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    files: Arc<files::Files>,
    events: NodeEvents,
    shell: Option<Arc<Shell>>,
}

impl Machine {
    /// Creates a machine, and checks the directories in the options.
    pub fn new(mut options: Options) -> Result<Self, StartError> {
        options.workspace = directory("the workspace", &options.workspace)?;
        for root in &mut options.allow_roots {
            *root = directory("the allowed root", root)?;
        }
        // With a sandbox for commands, the file tools must not be a way around it.
        if options.sandbox.is_some() && options.allow_roots.is_empty() {
            options.allow_roots.push(options.workspace.clone());
        }
        let hidden = hidden_files(&options);
        let files = files::Files::open(&options, &hidden).map_err(|(path, error)| {
            StartError::Directory { what: "the allowed root", path, error }
        })?;
        let events = NodeEvents::new();
        let shell = Shell::new(&options, events.clone())?;
        Ok(Self { inner: Arc::new(Inner { options, files, events, shell }) })
    }

    /// Registers the tools.
    pub fn register(&self, tools: &mut ToolRegistry) {
        files::register(self, tools);
        shell::register(self, tools);
    }

    /// Returns the events about background processes, for the client that connects the machine.
    pub fn events(&self) -> &NodeEvents {
        &self.inner.events
    }

    /// Ends every running command, and waits until all their processes have ended.
    pub async fn shut_down(&self) {
        if let Some(shell) = self.shell() {
            shell.shut_down().await;
        }
    }

    pub(crate) fn files(&self) -> &Arc<files::Files> {
        &self.inner.files
    }

    pub(crate) fn shell(&self) -> Option<&Arc<Shell>> {
        self.inner.shell.as_ref()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("options", self.options()).finish_non_exhaustive()
    }
}

/// Returns the files that the file tools hide. With a sandbox, these include the credentials that
/// the sandbox hides.
fn hidden_files(options: &Options) -> Vec<PathBuf> {
    let mut hidden = options.hidden.clone();
    if options.sandbox.is_some() {
        let mut homes = sa_sandbox::homes();
        homes.extend(options.home().and_then(|home| home.canonicalize().ok()));
        hidden.extend(sa_sandbox::credentials(&homes, &options.allow_roots));
    }
    hidden
}

fn directory(what: &'static str, path: &Path) -> Result<PathBuf, StartError> {
    let usable = path.canonicalize().and_then(|path| std::fs::read_dir(&path).map(|_| path));
    usable.map_err(|error| StartError::Directory { what, path: path.to_owned(), error })
}
