//! The REST surface: tools, calls with their history, and live events.
//!
//! A call arrives as `POST /v1/tools/{name}/call`, with the tool's name in the body, or as a frame
//! on the WebSocket for calls. Each becomes a [`sa_core::CallRequest`].

pub mod http;
