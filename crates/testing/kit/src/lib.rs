//! Test support: a gateway on port 0, nodes and agents.
//!
//! [`Setup`] starts a gateway, in this process or as a separate program. Its directory is temporary
//! and is removed afterwards. [`FakeNode`] sends exactly the frames that a test wants; [`SdkNode`]
//! is a real node. [`Agent`] uses the REST API, and [`CallSocket`] the WebSocket for calls.
//! [`ScriptedModel`] replaces a model's server. All helpers wait for events, and [`soon`] and
//! [`eventually`] limit the waiting time.

mod agent;
mod authority;
mod calls;
mod canary;
mod cli;
mod gateway;
mod model;
mod node;
mod participant;
mod plugin_server;
mod proxy;
mod raw;
mod relay;
mod scale;
mod sdk;
mod traffic;
mod wait;

pub use agent::{Agent, Events, Reply};
pub use authority::{Asked, Authority, Counts, Held, Manner};
pub use calls::CallSocket;
pub use canary::{assert_nowhere, find_in_files};
pub use cli::{Cli, Finished, Started};
pub use gateway::{Gateway, Setup, is_private};
pub use model::{ModelReply, ScriptedModel};
pub use node::{FakeNode, Hello, Refused, Request};
pub use participant::Participant;
pub use plugin_server::{PluginAnswer, PluginRequest, PluginServer};
pub use proxy::Proxy;
pub use raw::RawHttp;
pub use relay::RelaySocket;
pub use scale::{Dice, count, peak_resident, raise_file_limit, resident, resident_anonymous};
pub use sdk::{Gate, SdkNode, Tool, gate, registry};
pub use traffic::Traffic;
pub use wait::{TIMEOUT, eventually, soon};

/// The message type that scripts and tests match on.
pub use tokio_tungstenite::tungstenite::Message;
