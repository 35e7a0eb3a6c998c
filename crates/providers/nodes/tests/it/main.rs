//! Tests nodes behind a small gateway: one behaviour per file.

mod bad_frames;
mod bad_hello;
mod early_frames;
mod eligibility;
mod events;
mod hello_sizes;
mod hosts;
mod invalid_names;
mod names;
mod ownership;
mod prefixes;
mod probes;
mod reconnect;
mod skills;
mod tokens;
mod unreadable_schemas;
mod wrong_clock;
