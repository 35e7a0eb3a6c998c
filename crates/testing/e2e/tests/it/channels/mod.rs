//! Channels of a gateway process: crashes, many clients, cut connections.

mod attachments;
mod crash;
mod cut_connections;
mod latency;
mod method_calls;
mod order;
mod presence;
mod reader;
mod slow_reader;
