//! Tests channels on real sockets, alone and behind a small gateway.

mod access;
mod attachments;
mod bad_frames;
mod context;
mod gateway;
mod handles;
mod hostile;
mod kit;
mod leaving;
mod method_calls;
mod methods;
mod order;
mod presence;
mod quota;
mod refusals;
mod resume;
mod roster;
mod shares;
