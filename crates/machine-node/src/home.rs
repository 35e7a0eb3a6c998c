//! `~`, which only a shell takes for a home directory.

use sa_node_sdk::ToolError;

/// Refuses a path that means somebody's home. Taken as it is written, it would be a directory called `~` in the workspace.
pub(crate) fn refuse(name: &str, path: &str) -> Result<(), ToolError> {
    if path != "~" && !path.starts_with("~/") {
        return Ok(());
    }
    let whole = std::env::var("HOME").map(|home| format!(", such as {home}{}", &path[1..])).unwrap_or_default();
    Err(ToolError::InvalidArgs(format!(
        "`{name}` begins with `~`, which is not expanded here; write the path in full{whole}, or ./{path} if a file is \
         really called that"
    )))
}
