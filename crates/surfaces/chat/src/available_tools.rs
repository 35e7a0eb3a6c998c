//! The gateway's tools that a principal may use.

use sa_core::{Router, ToolView, View};

/// The maximum number of tools; no model is offered more.
const MAX_TOOLS: usize = 10_000;

/// Returns the size of a list of tools in bytes.
pub(crate) fn weight(tools: &[ToolView]) -> usize {
    tools.iter().map(|tool| tool.tool.weight()).sum()
}

/// Returns the selected tools that a view may call now, sorted by name.
pub(crate) fn tools(router: &Router, view: &View, wanted: impl Fn(&str) -> bool) -> Vec<ToolView> {
    let policy = router.policy();
    let usable = |tool: &ToolView| {
        tool.online
            && tool.tool.for_models
            && wanted(&tool.name)
            && policy.allows(&view.principal, tool)
    };
    router.directory().list(view, None, MAX_TOOLS, usable).tools
}
