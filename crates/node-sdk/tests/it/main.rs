//! Tests of the SDK against a scripted gateway over real sockets. Each file tests one behaviour.

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
