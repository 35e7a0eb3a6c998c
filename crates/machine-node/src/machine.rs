//! A machine and what may be done on it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sa_node_sdk::{NodeEvents, ToolRegistry};

use crate::shell::Shell;
use crate::{files, shell};

/// What may be done on a machine, and where.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Where relative paths begin, and where commands run.
    pub workspace: PathBuf,
    /// What the file tools may touch. Empty: the workspace if there is a sandbox, and else whatever the user may.
    pub allow_roots: Vec<PathBuf>,
    /// Nothing is written: no `Write`, no `Edit`, and no `Bash` that is not held back by a sandbox.
    pub read_only: bool,
    /// Files that no tool may read: the node's own token and configuration.
    pub hidden: Vec<PathBuf>,
    /// What holds commands back. None: they may do what the user may.
    pub sandbox: Option<Sandbox>,
    /// What commands find in their environment, less what is the node's own.
    pub environment: Environment,
    /// The program that keeps commands, when it is another than this one: see [`keeper`](crate::keeper).
    pub keeper: Option<PathBuf>,
}

/// Names and values of variables. Its `Debug` shows the names.
#[derive(Clone, Default)]
pub struct Environment(pub Vec<(OsString, OsString)>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What a command in a sandbox may do beyond reading the system's files and writing to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    /// Whether it may use the network.
    pub network: bool,
}

impl Options {
    /// A machine on which the tools may do what its user may.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            allow_roots: Vec::new(),
            read_only: false,
            hidden: Vec::new(),
            sandbox: None,
            environment: Environment(std::env::vars_os().collect()),
            keeper: None,
        }
    }
}

/// Why a machine cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A directory that the options name cannot be used.
    #[error("{what} {path:?} cannot be used: {error}")]
    Directory {
        /// Which of the options.
        what: &'static str,
        /// As it was given.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The sandbox is not possible here; without it nothing is offered.
    #[error("commands cannot be held in a sandbox: {why}")]
    Sandbox {
        /// What is missing.
        why: String,
    },
    /// A secret of the node's would be visible in the sandbox.
    #[error("commands cannot be held in a sandbox: {why}")]
    Secret {
        /// Which one, and why.
        why: String,
    },
}

/// A machine whose shell and files are offered as tools.
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
    /// Looks at the directories that the options name.
    pub fn new(mut options: Options) -> Result<Self, StartError> {
        options.workspace = directory("the workspace", &options.workspace)?;
        for root in &mut options.allow_roots {
            *root = directory("the allowed root", root)?;
        }
        // Who holds commands back does not mean the file tools to be the way around it.
        if options.sandbox.is_some() && options.allow_roots.is_empty() {
            options.allow_roots.push(options.workspace.clone());
        }
        let files = files::Files::open(&options).map_err(|(path, error)| StartError::Directory {
            what: "the allowed root",
            path,
            error,
        })?;
        let events = NodeEvents::new();
        let shell = Shell::new(&options, events.clone())?;
        Ok(Self { inner: Arc::new(Inner { options, files, events, shell }) })
    }

    /// Adds the tools.
    pub fn register(&self, tools: &mut ToolRegistry) {
        files::register(self, tools);
        shell::register(self, tools);
    }

    /// What becomes of the processes that the machine runs in the background, for the client that connects it.
    pub fn events(&self) -> &NodeEvents {
        &self.inner.events
    }

    /// Ends every command that still runs, and waits until all of them are gone.
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

fn directory(what: &'static str, path: &Path) -> Result<PathBuf, StartError> {
    let usable = path.canonicalize().and_then(|path| std::fs::read_dir(&path).map(|_| path));
    usable.map_err(|error| StartError::Directory { what, path: path.to_owned(), error })
}
