//! Clients of channels in Rust and in TypeScript, against a gateway process.

mod browser;
mod instances;
mod interoperation;
mod javascript;
mod reconnect;
mod restart;
mod storm;
