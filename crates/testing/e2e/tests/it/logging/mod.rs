//! Logs and traces of a gateway process.

mod lost_output;
mod output;
mod traces;
