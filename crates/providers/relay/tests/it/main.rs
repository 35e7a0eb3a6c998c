//! Tests sessions, alone and behind a small gateway: one behaviour per file.

mod agent_sockets;
mod budgets;
mod caller_tools;
mod callers;
mod end_of_stream;
mod event_bytes;
mod kit;
mod original_client;
mod own_directory;
mod presence;
mod reach;
mod stored_bytes;
