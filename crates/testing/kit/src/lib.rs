//! Test support: a small gateway on port 0, nodes and agents.
//!
//! A [`Setup`] has the settings, and creates the [`Parts`]: a router, a store and tokens.
//! [`Parts::serve`] starts a [`Gateway`] with the routes of a provider or a surface. All helpers
//! use a gateway as a [`Server`], so a test may also start a whole one.
//!
//! [`FakeNode`] sends exactly the frames that a test wants; [`SdkNode`] is a real node. [`Agent`]
//! uses the REST API, and [`CallSocket`] the WebSocket for calls. [`ScriptedModel`] replaces a
//! model's server. All helpers wait for events, and [`soon`] and [`eventually`] limit the waiting
//! time.

mod agent;
mod authority;
mod calls;
mod canary;
mod channels;
pub mod chat;
mod gateway;
mod journal;
mod ledger;
pub mod mcp;
pub mod messaging;
mod model;
mod node;
mod participant;
mod plugin_server;
pub mod plugins;
mod proxy;
mod raw;
mod relay;
mod scale;
mod sdk;
mod server;
pub mod sessions;
mod setup;
mod surfaces;
mod tokens;
mod traffic;
pub mod upstream;
mod wait;

pub use agent::{Agent, Events, Reply};
pub use authority::{Asked, Authority, Behaviour, Counts, Held};
pub use calls::CallSocket;
pub use canary::{assert_nowhere, find_in_files, is_private};
pub use gateway::{Gateway, Parts, budget};
pub use journal::RecordingJournal;
pub use model::{ModelReply, ScriptedModel};
pub use node::{FakeNode, Hello, Refused, Request};
pub use participant::Participant;
pub use plugin_server::{PluginAnswer, PluginRequest, PluginServer};
pub use proxy::Proxy;
pub use raw::RawHttp;
pub use relay::RelaySocket;
pub use scale::{Dice, count, peak_resident, raise_file_limit, resident, resident_anonymous};
pub use sdk::{Gate, SdkNode, Tool, gate, registry};
pub use server::Server;
pub use setup::{Limits, Settings, Setup};
pub use tokens::MemoryTokens;
pub use traffic::Traffic;
pub use wait::{TIMEOUT, eventually, soon};

/// The message type that scripts and tests match on.
pub use tokio_tungstenite::tungstenite::Message;
