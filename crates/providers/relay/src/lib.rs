//! Sessions: an agent works for a caller, which lends it tools.
//!
//! The caller sends a task and the list of its own tools that the agent may use ([`Sessions`]).
//! The tools become a provider in the session's scope ([`link`]), so that they are called like
//! any other tool. The agent is a process that the gateway starts ([`agent`]), or one that
//! connects by itself. It calls the tools through the session's own Unix socket ([`socket`]). The
//! caller receives each call as a `caller_tool_request`, on any connection that it listens on,
//! and answers it ([`caller_requests`]).

mod agent;
mod archive;
mod args;
mod builtin;
mod byte_counter;
mod caller_requests;
pub mod client;
mod connection;
mod doctor;
mod events;
pub mod http;
mod lines;
mod link;
mod presence;
mod record;
mod rpc;
mod sandbox;
mod session;
mod sessions;
mod settings;
mod socket;
mod status;
mod turn;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_core::Trimmer;
use sa_limits::budget::SharedBudget;

pub use agent::{AgentCommand, Input};
pub use caller_requests::{Following, SessionItem};
pub use events::Event;
pub use record::SessionView;
pub use sandbox::agent_directories;
pub use session::Session;
pub use sessions::Sessions;
pub use settings::{Settings, Shared};
pub use socket::socket_dir;
pub use status::SessionStatus;

/// The provider kind of the tools for using sessions.
pub const KIND: &str = "sessions";
/// The provider kind of callers' tools.
pub const CALLER_KIND: &str = "caller";
/// The tool that starts and continues sessions.
pub const MESSAGE: &str = "session_message";
pub const END: &str = "session_end";
pub const RESPOND: &str = "caller_tool_response";

/// The gateway's budgets that the connections of agents share with its other clients.
#[derive(Debug, Clone)]
pub struct Budgets {
    pub connections: Arc<SharedBudget>,
    /// For the bytes of requests, from their first byte until they are handled.
    pub requests: Arc<SharedBudget>,
    /// For the bytes of answers that agents have not read yet.
    pub answers: Arc<SharedBudget>,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of the sockets, which only this user can access.
    pub socket_dir: PathBuf,
    /// The data directory, which is hidden from sandboxed agents.
    pub data_dir: PathBuf,
    /// Other files that are hidden from sandboxed agents, such as the gateway's configuration.
    pub hidden: Vec<PathBuf>,
    /// The program that agents find on their PATH.
    pub program: PathBuf,
    /// The default timeout of a call to a caller's tool.
    pub timeout: Duration,
    /// How long to wait for a caller that has stopped listening.
    pub caller_grace: Duration,
    /// The idle timeout of a session.
    pub idle: Duration,
    /// How long a message waits for an agent that connects by itself, before it counts as failed.
    pub agent_timeout: Duration,
    /// The maximum number of open sessions.
    pub max_sessions: usize,
    /// The maximum number of concurrent calls to one caller's tools.
    pub max_pending: usize,
    /// The maximum length of a line on a socket.
    pub max_line_bytes: usize,
    pub budgets: Budgets,
    /// The maximum number of stored events per session.
    pub keep_events: u64,
    /// The maximum size of stored events per session, in bytes. The newest are kept.
    pub keep_event_bytes: u64,
    /// The maximum size of the stored events of all sessions, in bytes.
    pub max_stored_bytes: usize,
    /// How long events and ended sessions are kept.
    pub keep: Duration,
    /// Deletes expired entries.
    pub trimmer: Arc<Trimmer>,
    pub agents: BTreeMap<String, AgentCommand>,
    /// The agent of a session that names none. If empty, the only configured agent, or else one
    /// that connects by itself.
    pub default_agent: String,
}
