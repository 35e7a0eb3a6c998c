//! Tests of the configuration with any input.

mod input;
mod secrets;
