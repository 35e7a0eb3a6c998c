//! Tests calls over REST on a small gateway: one behaviour per file.

mod bad_frames;
mod call;
mod cancel;
mod errors;
mod limits;
mod one_outcome;
mod tools;
