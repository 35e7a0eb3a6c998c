//! `Write`: replaces the content of a file, completely or not at all.

use std::sync::Arc;

use sa_node_sdk::{NodeTool, ToolContext, ToolResult};
use serde_json::{Value, json};

use super::args::{Args, invalid};
use super::replace::{current, replace};
use super::{Files, blocking, errors};

pub(super) struct Write(pub(super) Arc<Files>);

#[async_trait::async_trait]
impl NodeTool for Write {
    async fn call(&self, _: ToolContext, args: Value) -> ToolResult {
        let mut args = Args::new(args)?;
        let (path, content) = (args.path("path")?, args.text("content")?);
        if path.ends_with('/') {
            return Err(invalid(format!(
                "`path` names a directory: {path}; append the name of a file"
            )));
        }
        let files = Arc::clone(&self.0);
        blocking(move || files.write(&path, &content)).await
    }

    fn title(&self) -> Option<String> {
        Some("Write a file".into())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Writes a file on this machine. An existing file is replaced completely, and keeps its mode and owner; \
             missing directories are created. The write is atomic where possible."
                .into(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Path to the file. Relative paths resolve against the node workspace." },
                "content": { "type": "string", "description": "Content to write." },
            },
            "required": ["path", "content"],
        }))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The resolved absolute path." },
                "bytes": { "type": "integer", "description": "Number of bytes written." },
            },
            "required": ["path", "bytes"],
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "title": "Write a file", "readOnlyHint": false, "destructiveHint": true,
            "idempotentHint": true, "openWorldHint": false }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["filesystem.write".into()]
    }
}

impl Files {
    fn write(&self, path: &str, content: &str) -> ToolResult {
        let path = self.place.resolve(Some(path));
        let explain = |errno| errors::explain(&self.place, &path, errno);
        let target = self.place.target(&path, true)?;
        let written = self.locks.with(&target, || {
            let old = current(&self.place, &path, &target)?;
            replace(&target, old.as_ref(), content.as_bytes(), || true).map_err(explain)
        });
        written.map_err(explain)??;
        Ok(json!({ "path": path.to_string_lossy(), "bytes": content.len() }))
    }
}
