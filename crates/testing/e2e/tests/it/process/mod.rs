//! The gateway as a process: start, crash, shutdown, disk, TLS.

mod clock_jump;
mod crash;
mod full_disk;
mod missing_store;
mod reconnect_storm;
mod shutdown;
mod start;
pub(crate) mod tls;
