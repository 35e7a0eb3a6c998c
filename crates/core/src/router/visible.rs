//! A tool that a token may not see looks exactly like a tool that does not exist.

use super::Router;
use crate::directory::{Route, Unresolved};
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::View;

impl Router {
    /// Finds who answers to a name, among the tools that the principal may see.
    pub fn resolve(&self, name: &str, view: &View) -> Result<Route, Unresolved> {
        self.visible(self.directory.resolve(name, view), view)
    }

    /// What a principal learns of what was found.
    pub(super) fn visible(&self, found: Result<Route, Unresolved>, view: &View) -> Result<Route, Unresolved> {
        if !view.principal.is_limited() {
            return found;
        }
        let shown = match &found {
            Ok(route) => self.policy().shows(&view.principal, &route.scope, &route.leading),
            Err(Unresolved::Offline { scope, leading, .. }) => self.policy().shows(&view.principal, scope, leading),
            Err(Unresolved::Unknown { .. }) => false,
        };
        // The reasons of an unknown name may mention other tools and hosts.
        if shown { found } else { Err(Unresolved::Unknown { similar: Vec::new(), hostless: false }) }
    }

    /// The error of a call whose name leads nowhere.
    pub(super) fn unresolved(&self, name: &str, view: &View, unresolved: Unresolved) -> CallError {
        let error = unresolved.into_error(name);
        if error.kind != CallErrorKind::NotFound || !view.principal.is_limited() {
            return error;
        }
        // Looked up for both cases, so that the time that it takes does not tell them apart.
        let found = self.directory.resolve(name, view);
        let exists = !matches!(found, Err(Unresolved::Unknown { .. }));
        error
            .hint("list what this token may use with: switchboard tools; an operator can make one for more tools")
            .concealing(exists)
    }
}
