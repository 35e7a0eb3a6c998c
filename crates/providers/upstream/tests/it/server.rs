//! The upstream server's program, an example of this crate.

use std::path::Path;

/// Returns the path of the program.
pub(crate) fn server_program() -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/mcp_server");
    assert!(program.exists(), "{} is missing; build the examples", program.display());
    program.to_str().unwrap().to_owned()
}

/// Returns a configuration with one stdio server, which writes its files to `dir`.
pub(crate) fn stdio(name: &str, args: &[&str], dir: &Path, more: &str) -> String {
    sa_testkit::upstream::stdio(&server_program(), name, args, dir, more)
}
