//! Sessions: an agent at work for a caller, who lends it tools.
//!
//! The caller says what is to be done and which tools of its own the agent may use ([`Sessions`]). The tools become a
//! provider in the session's scope ([`link`]), so that a call of one is a call like any other. The agent is a process that
//! the gateway starts ([`agent`]) or that comes by itself; it reaches the tools through the session's own Unix socket
//! ([`socket`]). The caller hears of each call as a `caller_tool_request`, by whichever road it listens on, and answers it
//! ([`asking`]).

mod agent;
mod args;
mod asking;
mod builtin;
pub mod client;
mod connection;
mod events;
pub mod keeper;
mod link;
mod presence;
mod record;
mod rpc;
mod sandbox;
mod session;
mod sessions;
mod socket;
mod turn;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_core::Trimmer;

pub use agent::{AgentCommand, Input};
pub use asking::{Following, News};
pub use events::Event;
pub use record::SessionView;
pub use sandbox::check as check_sandboxes;
pub use session::Session;
pub use sessions::Sessions;
pub use socket::socket_dir;

/// The provider kind of the tools with which sessions are used.
pub const KIND: &str = "sessions";
/// The provider kind of what callers lend.
pub const CALLER_KIND: &str = "caller";
/// The tool that starts and continues sessions.
pub const MESSAGE: &str = "session_message";
pub const END: &str = "session_end";
pub const RESPOND: &str = "caller_tool_response";

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the sockets are: a directory of ours alone.
    pub socket_dir: PathBuf,
    /// What no agent in a sandbox may see.
    pub data_dir: PathBuf,
    /// Files that no agent in a sandbox may see either, such as the gateway's configuration.
    pub hidden: Vec<PathBuf>,
    /// The program that keeps an agent's processes, called as `PROGRAM agent-keeper [--sandbox POLICY] -- COMMAND…`.
    pub program: PathBuf,
    /// How long a caller's tool may take, where the session does not say.
    pub timeout: Duration,
    /// How long a caller that has stopped listening is waited for.
    pub caller_grace: Duration,
    /// A session in which nothing happens for so long is ended.
    pub idle: Duration,
    /// Sessions that may be open at once.
    pub max_sessions: usize,
    /// Calls of one caller's tools that may run at once.
    pub max_pending: usize,
    /// The longest line on a socket.
    pub max_line_bytes: usize,
    /// Events that are kept of a session.
    pub keep_events: u64,
    /// For how long events and ended sessions are kept.
    pub keep: Duration,
    /// Deletes what is older.
    pub trimmer: Arc<Trimmer>,
    pub agents: BTreeMap<String, AgentCommand>,
    /// The agent of a session that names none; empty: the only one there is, or one that comes by itself.
    pub default_agent: String,
}
