//! The gateway's tools as a principal may use them.

use sa_core::{Router, ToolView, View};

/// More tools than any model is offered.
const MAX_TOOLS: usize = 10_000;

/// How many bytes tools have in a list of them.
pub(crate) fn weight(tools: &[ToolView]) -> usize {
    tools.iter().map(|tool| tool.tool.weight()).sum()
}

/// The tools that a view may call now and that are wanted, in the order of their names.
pub(crate) fn tools(router: &Router, view: &View, wanted: impl Fn(&str) -> bool) -> Vec<ToolView> {
    let policy = router.policy();
    let usable = |tool: &ToolView| {
        tool.online && tool.tool.for_models && wanted(&tool.name) && policy.allows(&view.principal, tool)
    };
    router.directory().list(view, None, MAX_TOOLS, usable).tools
}
