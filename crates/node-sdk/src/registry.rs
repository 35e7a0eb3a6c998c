use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use sa_protocol::node::ToolSpec;
use sa_protocol::{validate_capability, validate_tool_name};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::NodeTool;

/// The tools of a node, and the prefixes under which a gateway finds them.
#[derive(Default, Clone)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Arc<dyn NodeTool>>,
    /// The same tools by every spelling that is likely on the wire, so that a call needs one lookup
    /// and no copy.
    lookup: HashMap<String, Arc<dyn NodeTool>>,
    capabilities: BTreeSet<String>,
}

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty registry that already advertises a root prefix.
    #[track_caller]
    pub fn with_defaults(root: impl AsRef<str>) -> Self {
        let mut registry = Self::new();
        registry.add_capability_prefix(root);
        registry
    }

    /// Adds a tool under a name of lowercase words separated by dots. Capital letters are converted
    /// to lowercase. A tool with the same name is replaced.
    ///
    /// # Panics
    ///
    /// If the name is not valid (see [`validate_capability`](sa_protocol::validate_capability)).
    /// Names are written in the program, so an invalid name should be found at its start.
    #[track_caller]
    pub fn register(&mut self, name: impl AsRef<str>, tool: impl NodeTool) -> &mut Self {
        self.register_boxed(name, Arc::new(tool))
    }

    /// Adds a tool like [`register`](Self::register), as a trait object.
    #[track_caller]
    pub fn register_boxed(&mut self, name: impl AsRef<str>, tool: Arc<dyn NodeTool>) -> &mut Self {
        let name = normalised(name.as_ref());
        self.insert(name, tool)
    }

    /// Adds a tool under the bare name that a host gives it, such as `Bash`. Capital letters are
    /// kept.
    ///
    /// # Panics
    ///
    /// If the name is empty, is longer than 128 characters, or contains whitespace or control
    /// characters.
    #[track_caller]
    pub fn register_host_tool(&mut self, name: impl AsRef<str>, tool: impl NodeTool) -> &mut Self {
        let name = name.as_ref();
        if let Err(error) = validate_tool_name(name) {
            panic!("{name:?} is not a valid tool name: {error}");
        }
        self.insert(name.to_owned(), Arc::new(tool))
    }

    fn insert(&mut self, name: String, tool: Arc<dyn NodeTool>) -> &mut Self {
        self.lookup.insert(name.to_lowercase(), Arc::clone(&tool));
        self.lookup.insert(name.clone(), Arc::clone(&tool));
        self.tools.insert(name, tool);
        self
    }

    /// Advertises a prefix: the gateway will send calls of all tools below it to this node. A
    /// trailing dot is dropped.
    ///
    /// # Panics
    ///
    /// If the prefix is not valid, as in [`register`](Self::register).
    #[track_caller]
    pub fn add_capability_prefix(&mut self, prefix: impl AsRef<str>) -> &mut Self {
        let prefix = prefix.as_ref();
        self.capabilities.insert(normalised(prefix.strip_suffix('.').unwrap_or(prefix)));
        self
    }

    /// Advertises the prefix of every registered tool: its name without the last word. A name of
    /// one word is its own prefix.
    pub fn derive_capabilities_from_tools(&mut self) -> &mut Self {
        let prefixes = self
            .tools
            .keys()
            .map(|name| name.rsplit_once('.').map_or(name.as_str(), |(prefix, _)| prefix));
        self.capabilities.extend(prefixes.map(str::to_owned));
        self
    }

    /// Returns the names of the tools, sorted.
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// Returns the advertised prefixes, sorted and without duplicates.
    pub fn capabilities(&self) -> Vec<String> {
        self.capabilities.iter().cloned().collect()
    }

    /// Returns the tool with this name, ignoring case.
    pub fn get(&self, name: &str) -> Option<Arc<dyn NodeTool>> {
        match self.lookup.get(name) {
            Some(tool) => Some(Arc::clone(tool)),
            None => self.lookup.get(&name.to_lowercase()).cloned(),
        }
    }

    /// Returns the descriptions of the tools for the hello.
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|(name, tool)| spec(name, tool.as_ref())).collect()
    }
}

fn spec(name: &str, tool: &dyn NodeTool) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        title: tool.title(),
        description: tool.description(),
        input_schema: raw(tool.input_schema()),
        output_schema: raw(tool.output_schema()),
        annotations: raw(tool.annotations()),
        capabilities: tool.capabilities(),
        timeout_ms: tool
            .timeout()
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn raw(value: Option<Value>) -> Option<Box<RawValue>> {
    value.filter(|value| !value.is_null()).and_then(|value| to_raw_value(&value).ok())
}

#[track_caller]
fn normalised(name: &str) -> String {
    let lowered = name.to_lowercase();
    if let Err(error) = validate_capability(&lowered) {
        panic!("{name:?} is not a valid tool name or capability: {error}");
    }
    lowered
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRegistry")
            .field("tools", &self.tools.keys())
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolContext, ToolResult};

    struct Nothing;

    #[async_trait::async_trait]
    impl NodeTool for Nothing {
        async fn call(&self, _: ToolContext, _: Value) -> ToolResult {
            Ok(Value::Null)
        }
    }

    #[test]
    fn names_are_lowered_sorted_and_found_in_any_case() {
        let mut registry = ToolRegistry::new();
        registry.register("Macos.Notes.Search", Nothing).register("macos.clipboard.get", Nothing);
        assert_eq!(registry.tool_names(), ["macos.clipboard.get", "macos.notes.search"]);
        assert!(registry.get("MACOS.notes.search").is_some());
        assert!(registry.get("macos.notes").is_none());
    }

    #[test]
    fn prefixes_are_derived_and_kept_once() {
        let mut registry = ToolRegistry::with_defaults("macos");
        registry.register("macos.notes.search", Nothing).register("macos.notes.add", Nothing);
        registry.register("ping", Nothing).add_capability_prefix("Macos.Clipboard");
        registry.derive_capabilities_from_tools();
        assert_eq!(registry.capabilities(), ["macos", "macos.clipboard", "macos.notes", "ping"]);
    }

    #[test]
    fn a_prefix_may_end_with_a_dot() {
        let mut registry = ToolRegistry::with_defaults("macos.");
        registry.add_capability_prefix("a.b.").add_capability_prefix("a.b");
        assert_eq!(registry.capabilities(), ["a.b", "macos"]);
        for name in ["a..", ".", ".a"] {
            let add = || ToolRegistry::new().add_capability_prefix(name).capabilities();
            assert!(std::panic::catch_unwind(add).is_err(), "{name:?}");
        }
    }

    #[test]
    fn host_tools_keep_their_names() {
        let mut registry = ToolRegistry::new();
        registry.register_host_tool("Bash", Nothing).derive_capabilities_from_tools();
        assert_eq!(registry.tool_names(), ["Bash"]);
        assert_eq!(registry.capabilities(), ["Bash"]);
        assert!(
            registry.get("Bash").is_some()
                && registry.get("bash").is_some()
                && registry.get("BASH").is_some()
        );
    }

    #[test]
    fn invalid_names_panic() {
        for name in ["", "a b", "a..b", ".a", "a."] {
            let register = || ToolRegistry::new().register(name, Nothing).tool_names();
            assert!(std::panic::catch_unwind(register).is_err(), "{name:?}");
        }
        let register =
            || ToolRegistry::new().register("Frob..Nicate\u{200b}", Nothing).tool_names();
        let said = std::panic::catch_unwind(register).unwrap_err().downcast::<String>().unwrap();
        assert!(said.starts_with(r#""Frob..Nicate\u{200b}""#), "{said}");
    }
}
