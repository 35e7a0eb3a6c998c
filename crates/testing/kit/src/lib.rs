//! For tests: a gateway on port 0, nodes, agents.
//!
//! [`Setup`] makes a gateway, in this process or as a program of its own, in a directory that is gone afterwards.
//! [`FakeNode`] says exactly the frames that a test wants it to; [`SdkNode`] is a real one. [`Agent`] speaks REST and
//! [`CallSocket`] the socket for calls. [`ScriptedModel`] stands in for a model's server. Everything waits for events, and [`soon`] and [`eventually`] bound the wait.

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
pub use wait::{PATIENCE, eventually, soon};

/// What scripts and tests match on.
pub use tokio_tungstenite::tungstenite::Message;
