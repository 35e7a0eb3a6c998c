//! Tokens: what they open, and where they must not appear.

mod narrowed;
mod operator_token;
mod participants;
mod secrets;
