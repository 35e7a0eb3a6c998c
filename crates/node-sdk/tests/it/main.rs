//! The SDK against a gateway that does what each test tells it, over real sockets. One behaviour a file.

mod backoff;
mod bin_probe;
mod cancel;
mod concurrency;
mod context;
mod disconnect;
mod events;
mod final_errors;
mod handshake;
mod heartbeat;
mod oversized;
mod panic;
mod parts;
mod promises;
mod secrets;
mod shutdown;
mod support;
mod timeouts;
mod transcripts;
mod truncation;
mod unusable;
mod violations;
