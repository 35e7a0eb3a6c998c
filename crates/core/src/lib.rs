//! The model: tools, providers, calls, the directory and the router. No I/O.
pub mod store;
