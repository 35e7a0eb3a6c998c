//! The state that all clients of the surface share.

use std::sync::Arc;
use std::time::Duration;

use sa_core::directory::Route;
use sa_core::store::Records;
use sa_core::{Notices, Principal, Role, Router, View};
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::convert::Tools;
use crate::questions::SuspendedCalls;
use crate::search::Search;
use crate::service::Options;
use crate::tasks::Tasks;

/// The state that does not belong to one client.
pub(crate) struct Shared {
    pub(crate) router: Arc<Router>,
    pub(crate) notices: Notices,
    pub(crate) version: &'static str,
    pub(crate) search_by_default: bool,
    pub(crate) closing: CancellationToken,
    /// A view of the tools in the scope of everyone.
    pub(crate) anybody: View,
    pub(crate) tools: Tools,
    pub(crate) search: Search,
    pub(crate) suspended: SuspendedCalls,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) task_after: Duration,
    pub(crate) max_outbox_bytes: usize,
}

impl Shared {
    pub(crate) fn new(
        router: Arc<Router>,
        notices: Notices,
        records: Arc<dyn Records>,
        options: &Options,
        closing: CancellationToken,
    ) -> Self {
        Self {
            router,
            notices,
            version: options.version,
            search_by_default: options.search,
            tasks: Arc::new(Tasks::new(records, options, closing.clone())),
            task_after: options.task_after,
            max_outbox_bytes: options.max_outbox_bytes,
            closing,
            anybody: View::of(Arc::new(Principal::new("", "", Role::Agent))),
            tools: Tools::default(),
            search: Search::default(),
            suspended: SuspendedCalls::default(),
        }
    }

    /// Returns a tool in the scope of everyone that requires some arguments repeated in headers, if
    /// the principal may see it.
    pub(crate) fn wants_headers(&self, tool: &str, principal: &Principal) -> Option<Route> {
        let wants = |route: &Route| {
            route
                .tool
                .input
                .as_ref()
                .is_some_and(|input| input.raw().as_str().contains("x-mcp-header"))
        };
        let route = self.router.directory().resolve(tool, &self.anybody).ok().filter(wants)?;
        let exposed = route.exposed.as_deref().unwrap_or(&route.tool.name);
        self.router
            .policy()
            .shows(principal, &route.scope, &[exposed, &route.tool.name])
            .then_some(route)
    }

    pub(crate) fn searches(&self, caller: &Caller) -> bool {
        caller.search.unwrap_or(self.search_by_default)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
