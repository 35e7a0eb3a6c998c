//! Attacks on a sandbox with real processes, by root and by an unprivileged user.

mod attacks;
mod credentials;
mod lifetime;
mod missing;
mod pinned;
mod rig;
mod secrets;
mod sockets;
