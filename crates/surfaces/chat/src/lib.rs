//! The OpenAI-compatible surface: it offers the gateway's tools to a model and runs the calls that
//! the model makes.
//!
//! [`Chat::complete`] and [`Chat::stream`] use one loop, in [`run`]: ask the model, run its calls,
//! and return the results to it, until it answers. [`responses`] translates the Responses API from
//! and to it. [`Functions`] is for clients with their own loop: it defines the tools in the formats
//! of several model vendors, and runs the calls of a model's reply.

mod answers;
mod available_tools;
mod calls;
mod chat;
mod error;
mod execute;
mod formats;
pub mod http;
mod legacy;
mod memory;
mod request;
mod responses;
mod result;
mod round;
mod run;
mod server;
mod settings;
mod spec;
mod stream;
mod usage;

pub use calls::Caller;
pub use chat::{Chat, Event};
pub use error::ChatError;
pub use execute::{Execute, Functions, unknown_format};
pub use formats::Format;
pub use request::{Api, ChatRequest};
pub use settings::Settings;
pub use spec::{ApiKey, Spec};
