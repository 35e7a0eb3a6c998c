//! Tests the client on real sockets, with a server of the test and with a small gateway.

mod agents;
mod attachments;
mod calls;
mod context;
mod events;
mod kit;
mod old_server;
mod reconnect;
mod timeouts;
mod violations;
