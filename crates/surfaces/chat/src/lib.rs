//! The OpenAI-compatible surface: a model is offered the gateway's tools, and the gateway runs the calls that it makes.
//!
//! [`Chat::complete`] and [`Chat::stream`] are one loop, in [`run`]: ask the model, run what it calls, give it the results,
//! until it answers. [`responses`] translates the Responses API from and to it. [`Functions`] is for those who have a loop of their own: definitions of the tools in the words of
//! several makers of models, and the calls of a model's reply carried out.

mod calls;
mod chat;
mod error;
mod execute;
mod formats;
mod legacy;
mod memory;
mod offer;
mod request;
mod responses;
mod result;
mod round;
mod run;
mod server;
mod spec;
mod stream;
mod usage;

pub use calls::Caller;
pub use chat::{Chat, Event};
pub use error::ChatError;
pub use execute::{Execute, Functions, unknown_format};
pub use formats::Format;
pub use request::{Api, Asked};
pub use spec::{ApiKey, Spec};
