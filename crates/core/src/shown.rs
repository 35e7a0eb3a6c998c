//! Whether a change of the tools or documents is one that a principal is shown.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use crate::json::RawJson;
use crate::principal::{Scope, View};
use crate::provider::ProviderId;
use crate::router::Router;
use crate::schema::Schema;

/// The list of tools of one view, as it was at the last look.
///
/// A notice says in which scope something has changed. That is enough for most: they see a scope or they do not. A
/// principal that may see some tools only needs a look at its list, which costs a walk over all tools.
#[derive(Debug)]
pub struct Shown {
    view: View,
    /// Of a limited principal's list.
    digest: Mutex<u64>,
}

impl Shown {
    pub fn new(router: &Router, view: View) -> Self {
        let digest = Mutex::new(digest(router, &view));
        Self { view, digest }
    }

    /// Whether the list has changed since the last look, as far as a change in this scope can have changed it.
    pub fn changed(&self, router: &Router, scope: Option<&Scope>) -> bool {
        if scope.is_some_and(|changed| !self.view.scopes().any(|seen| seen == changed)) {
            return false;
        }
        if !self.view.principal.is_limited() {
            return true;
        }
        let now = digest(router, &self.view);
        let mut before = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *before, now) != now
    }

    /// Whether a change of the documents of this provider, or of an unknown one, can be a change of the lists of documents.
    pub fn documents_changed(&self, provider: Option<&ProviderId>) -> bool {
        let principal = &self.view.principal;
        match provider {
            Some(provider) => principal.may_include_from(&provider.id),
            None => !principal.is_limited() || !principal.tools.is_empty(),
        }
    }
}

/// A number that differs when a limited principal's list does. Others need none.
fn digest(router: &Router, view: &View) -> u64 {
    if !view.principal.is_limited() {
        return 0;
    }
    let policy = router.policy();
    let list = router.directory().list(view, None, usize::MAX - 1, |tool| policy.allows(&view.principal, tool));
    let mut hasher = DefaultHasher::new();
    for shown in list.tools {
        let tool = &shown.tool;
        (&shown.name, &shown.leading, shown.online, &tool.title, &tool.description).hash(&mut hasher);
        let schemas = [tool.input.as_ref().map(Schema::raw), tool.output_schema.as_ref(), tool.annotations.as_ref()];
        schemas.map(|schema| schema.map(RawJson::as_str)).hash(&mut hasher);
    }
    hasher.finish()
}
