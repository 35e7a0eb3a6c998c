//! Tests of the file tools on real files.

mod confined;
mod describe;
mod edit;
mod glob;
mod grep;
mod hidden;
mod read;
#[path = "../support/schema.rs"]
mod schema;
mod special;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_node::{Machine, Options};
use sa_node_sdk::{ErrorKind, ToolContext, ToolError, ToolRegistry};
use serde_json::Value;

/// A machine on a temporary directory.
struct Place {
    dir: tempfile::TempDir,
    tools: ToolRegistry,
}

impl Place {
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// Creates a machine with other options, which may name files of the directory.
    fn with(change: impl FnOnce(&mut Options, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path());
        change(&mut options, dir.path());
        let mut tools = ToolRegistry::new();
        Machine::new(options).unwrap().register(&mut tools);
        Self { dir, tools }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Creates a file and its directories.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Calls a tool, and checks the schema of its result. No tool may block its caller.
    async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        let (name, tool) = (tool, self.tools.get(tool).unwrap());
        let call = tool.call(ToolContext::for_test(name), args);
        let result = tokio::time::timeout(Duration::from_secs(60), call)
            .await
            .expect("the tool keeps its caller waiting")?;
        schema::check(&*tool, &result);
        Ok(result)
    }

    async fn ok(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args.clone()).await.unwrap_or_else(|error| panic!("{tool} {args}: {error}"))
    }

    async fn fails(&self, tool: &str, args: Value, kind: ErrorKind) -> String {
        let error = self.call(tool, args.clone()).await.expect_err(&format!("{tool} {args}"));
        assert_eq!(error.kind(), kind, "{tool} {args}: {error}");
        error.message().to_owned()
    }

    /// Returns the names in a directory, sorted.
    fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
