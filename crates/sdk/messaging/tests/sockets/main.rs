//! A client on real sockets, with a server of the test.

mod context;
mod kit;
mod old_server;
mod timeouts;
mod violations;
