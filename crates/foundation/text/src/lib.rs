//! Text that passes through the gateway: JSON as it was received, masks for secrets, and
//! suggestions for misspelt names.

pub mod json;
pub mod mask;
mod suggest;

pub use json::RawJson;
pub use suggest::{closest, similar};
