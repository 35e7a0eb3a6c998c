//! The upstream server's program.

use std::path::Path;

pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_e2e-mcp-server");

/// Returns a configuration with one stdio server, which writes its files to `dir`.
pub(crate) fn stdio(name: &str, args: &[&str], dir: &Path, more: &str) -> String {
    sa_gateway_kit::upstream::stdio(SERVER, name, args, dir, more)
}
