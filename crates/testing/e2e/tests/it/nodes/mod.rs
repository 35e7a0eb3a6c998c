//! Nodes that are real programs, and the commands about nodes.

mod bad_frames;
mod contested_names;
mod eligibility;
mod events;
mod examples;
mod hosts;
mod mistakes;
mod ownership;
mod probes;
mod reconnect;
mod skills;
mod tags;
mod tokens;
