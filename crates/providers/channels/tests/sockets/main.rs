//! Participants on real sockets, without a gateway around the channels.

mod context;
mod gateway;
mod handles;
mod kit;
mod leaving;
mod methods;
mod quota;
mod refusals;
