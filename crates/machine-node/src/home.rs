//! Rejects `~`, which only a shell expands to a home directory.

use sa_node_sdk::ToolError;

/// Rejects a path that refers to a home directory. Taken literally, it would be a directory called
/// `~` in the workspace.
pub(crate) fn refuse(name: &str, path: &str) -> Result<(), ToolError> {
    if path != "~" && !path.starts_with("~/") {
        return Ok(());
    }
    let whole = std::env::var("HOME")
        .map(|home| format!(", such as {home}{}", &path[1..]))
        .unwrap_or_default();
    Err(ToolError::InvalidArgs(format!(
        "`{name}` begins with `~`, which is not expanded here; write the full path{whole}, or ./{path} if the file \
         really has this name"
    )))
}
