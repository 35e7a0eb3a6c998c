//! The command line against a running gateway.

mod docs;
mod first_steps;
pub(crate) mod hints;
mod status;
mod upstream;
