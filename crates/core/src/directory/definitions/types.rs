//! Definition changes for operators, and definitions in the form in which a store saves them.

use std::sync::Arc;

use sa_text::json::difference::Change;

/// The policy for a changed tool definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// The new definition is listed immediately.
    #[default]
    Allow,
    /// The old definition stays listed, and calls fail until an operator accepts the new one.
    Hold,
}

/// A change of a tool's definition that no operator has accepted yet.
#[derive(Debug, Clone)]
pub struct ToolChange {
    pub kind: String,
    pub id: String,
    /// The provider's own name for the tool.
    pub tool: Arc<str>,
    /// The name under which it is listed; absent while it is not listed.
    pub name: Option<Arc<str>>,
    pub at_ms: i64,
    /// Distinguishes this change from a newer one.
    pub revision: i64,
    /// Whether calls of the tool fail until the change is accepted.
    pub held: bool,
    pub changes: Vec<Change>,
    /// The number of invisible characters removed from its texts.
    pub invisible: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    #[error("there is no change of this tool to accept")]
    Nothing,
    #[error("the tool has changed again since that change was shown")]
    Newer,
}

/// All remembered definitions of one provider's tools, for a store.
#[derive(Debug, Clone, Default)]
pub struct SavedDefinitions {
    /// The pool of the grant that limits it; absent for an installed provider.
    pub pool: Option<Arc<str>>,
    /// Whether some of its definitions were forgotten.
    pub incomplete: bool,
    pub tools: Vec<SavedTool>,
}

#[derive(Debug, Clone)]
pub struct SavedTool {
    pub name: Arc<str>,
    /// A JSON object.
    pub definition: Arc<str>,
    pub invisible: usize,
    pub finding: Option<SavedFinding>,
}

#[derive(Debug, Clone)]
pub struct SavedFinding {
    pub revision: i64,
    pub before: Option<Arc<str>>,
    pub proposed: Option<Arc<str>>,
    pub invisible: usize,
}
