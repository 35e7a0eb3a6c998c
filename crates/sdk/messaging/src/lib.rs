//! Take part in channels: messages, presence, methods, streaming, replay, attachments.
//!
//! A channel lives on a Switchboard gateway. In it agents, workers, web pages and people exchange
//! messages, see the other participants, and call each other's methods. A [`Client`] is one
//! participant. It can send and receive messages, offer methods, and call those of others, all
//! concurrently.
//!
//! ```no_run
//! use futures_util::StreamExt as _;
//! use sa_messaging::{CallOptions, Client, Event, EventFilter, Method, MethodContext, SendOptions};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greet {
//!     name: String,
//! }
//!
//! # async fn run(token: String) -> Result<(), sa_messaging::Error> {
//! let client = Client::builder()
//!     .server("ws://127.0.0.1:3210")
//!     .token(token)
//!     .channel("lobby")
//!     .handle("my-worker")
//!     .name("My Worker")
//!     .kind("worker")
//!     .method(Method::new("greet", async |args: Greet, context: MethodContext| {
//!         context.progress(50.0).await?;
//!         Ok::<_, sa_messaging::Error>(format!("Hello, {}!", args.name))
//!     }))
//!     .connect()
//!     .await?;
//!
//! client.send("I am here.", SendOptions::default()).await?;
//! let mut events = client.events(EventFilter::default());
//! while let Some(event) = events.next().await {
//!     if let Event::Message(message) = event {
//!         println!("{}: {}", message.envelope.sender_id, message.content);
//!     }
//! }
//! # let call = client.call_method("other", "search", serde_json::json!({ "q": "x" }), CallOptions::new());
//! # call.result().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Lost connections
//!
//! A lost connection costs only time. The client reconnects, receives the messages that it missed,
//! and delivers each message once and in order. Messages that it sends without a connection wait.
//! Unacknowledged messages are sent again under the same id, and stored once.
//!
//! If messages were deleted meanwhile, the gap cannot be closed, and [`Client::on_reconnect`]
//! reports it. With a server without the necessary extensions, an unacknowledged message fails,
//! because sending it again might duplicate it.
//!
//! A call in progress continues: its result is among the missed messages. A running method
//! continues, too, and sends its result on the next connection, unless the server has ended the
//! call meanwhile. A method never runs twice for one call.
//!
//! # Limits
//!
//! A stream that is not read queues [a bounded amount](ClientBuilder::event_buffer), then reports
//! the number of dropped events. Calls have a [timeout](CallOptions::timeout). All tasks of a
//! client end when its last handle is dropped.
//!
//! # Secrets
//!
//! The token never appears in an error, a log line or the `Debug` of a type of this crate. (The
//! WebSocket library logs whole requests with their URLs at level TRACE of the target
//! `tungstenite`. Leave that target at DEBUG.)

mod address;
mod agent_tools;
mod attachment;
mod builder;
mod call;
mod client;
mod connection;
mod context;
mod error;
mod event;
mod execute;
mod handlers;
mod message;
mod metadata;
mod method;
mod pause;
mod payload;
mod pubsub;
mod queue;
mod receive;
mod replay;
mod roster;
mod shared;
mod state;

pub use agent_tools::{AgentTools, AgentToolsOptions, ToolDefinition, ToolOutput, tools_for_agent};
pub use attachment::Attachment;
pub use builder::{ClientBuilder, ReplayMode};
pub use call::{CallOptions, MethodCall, MethodChunk, MethodChunks, MethodValue};
pub use client::{Client, DiscoveredMethod};
pub use context::{IntoMethodOutput, MethodContext, MethodOutput};
pub use error::{Direction, Error, ValidationError};
pub use event::{
    Delivery, Envelope, Event, EventFilter, Events, LeaveReason, Presence, PresenceAction,
    Received, is_message_targeted_at,
};
pub use handlers::Subscription;
pub use message::{MessageHandle, SendOptions, Sent};
pub use metadata::{AdvertisedMethod, Participant};
pub use method::Method;
pub use pause::{InterruptHandler, InterruptMonitor, PAUSE_METHOD, pause_method};
pub use payload::{
    ExecutionPause, MessageError, MethodCallRequest, MethodCancel, MethodResult, NewMessage,
    PauseStatus, UpdateMessage,
};
pub use pubsub::{HistoryPage, Missed, PubSub, PublishOptions, RawMessage, RawMessages};
pub use roster::{Roster, RosterChange, RosterChanges, RosterUpdate};
pub use sa_protocol::ReconnectBackoff;
pub use shared::Position;
pub use state::{ConnectionState, Reconnected};
