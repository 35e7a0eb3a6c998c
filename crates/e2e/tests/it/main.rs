//! Switchboard as its users meet it: real sockets, real processes, one behaviour a file.

mod bad_agent_frames;
mod bad_hello;
mod bad_http;
mod bad_node_frames;
mod between_agents;
mod cancel;
mod cli_calls;
mod cli_config;
mod cli_doctor;
mod cli_views;
mod connections;
mod contract_call;
mod contract_errors;
mod contract_events;
mod contract_start;
mod contract_tokens;
mod contract_tools;
mod crash;
mod docs;
mod door;
mod eligibility;
mod half_open;
mod hosts;
mod limits;
mod machine_files;
mod mcp;
mod node_events;
mod node_names;
mod node_ownership;
mod node_restart;
mod node_tokens;
mod one_outcome;
mod probes;
mod revocation;
mod secrets;
mod seed_programs;
mod shutdown;
mod skills;
mod slow_readers;
mod tls;
mod traces;
mod unreadable_schema;
mod upstream;

/// The gateway's program.
const SWITCHBOARD: &str = env!("CARGO_BIN_EXE_e2e-switchboard");
