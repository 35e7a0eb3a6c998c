//! Tests the chat surface on a small gateway: one behaviour per file.

mod budget;
mod client_tools;
mod completions;
mod faults;
mod functions;
mod gateway;
mod hostile;
mod limits;
