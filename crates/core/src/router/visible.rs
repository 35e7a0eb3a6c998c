//! A tool that a token may not see looks exactly like a tool that does not exist.

use super::Router;
use crate::directory::{Route, Unresolved};
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::View;

impl Router {
    /// Resolves a name among the tools that the principal may see.
    pub fn resolve(&self, name: &str, view: &View) -> Result<Route, Unresolved> {
        self.visible(self.directory.resolve(name, view), view)
    }

    /// Hides a found tool from a principal that may not see it.
    pub(super) fn visible(
        &self,
        found: Result<Route, Unresolved>,
        view: &View,
    ) -> Result<Route, Unresolved> {
        if !view.principal.is_limited() {
            return found;
        }
        let is_visible = match &found {
            Ok(route) => self.policy().shows(&view.principal, &route.scope, &route.leading),
            Err(Unresolved::Offline { scope, leading, .. }) => {
                self.policy().shows(&view.principal, scope, leading)
            }
            Err(Unresolved::Unknown { .. }) => false,
        };
        // The details of an unknown name may mention other tools and hosts.
        if is_visible {
            found
        } else {
            Err(Unresolved::Unknown { similar: Vec::new(), hostless: false })
        }
    }

    /// Returns the error for a name that cannot be resolved.
    pub(super) fn unresolved(&self, name: &str, view: &View, unresolved: Unresolved) -> CallError {
        let error = unresolved.into_error(name);
        if error.kind != CallErrorKind::NotFound || !view.principal.is_limited() {
            return error;
        }
        // Looked up in both cases, so that the response time does not reveal whether the tool
        // exists.
        let found = self.directory.resolve(name, view);
        let exists = !matches!(found, Err(Unresolved::Unknown { .. }));
        error
            .hint("run `switchboard tools` to list the tools of this token; an operator can create a token for more \
                   tools")
            .concealing(exists)
    }
}
