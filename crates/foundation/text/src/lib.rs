//! Text that passes through the gateway: JSON as it was received, secrets, excerpts, and texts for
//! terminals and logs.

mod excerpt;
mod host;
mod invisible;
pub mod json;
pub mod mask;
mod parse_error;
mod printable;
pub mod redact;
mod span;
mod suggest;

pub use excerpt::{excerpt, excerpt_of_ends, quote};
pub use host::split_port;
pub use invisible::is_invisible;
pub use json::RawJson;
pub use parse_error::{plain, plain_secret_toml, plain_toml};
pub use printable::{affects_display, json_escape, printable};
pub use span::span;
pub use suggest::{closest, similar};
