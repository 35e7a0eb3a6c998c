//! Detects changes of tools or documents that a principal can see.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::Mutex;

use crate::principal::{Scope, View};
use crate::provider::ProviderId;
use crate::router::Router;
use crate::schema::Schema;
use sa_text::json::RawJson;

/// The list of tools of one view at the last check.
///
/// A notice contains the scope of a change. That is enough for most principals, which see a whole
/// scope or none of it. For a principal that may see some tools only, the list itself is compared.
/// This iterates over all tools.
#[derive(Debug)]
pub struct Shown {
    view: View,
    /// A digest of a limited principal's list.
    digest: Mutex<u64>,
}

impl Shown {
    pub fn new(router: &Router, view: View) -> Self {
        let digest = Mutex::new(digest(router, &view));
        Self { view, digest }
    }

    /// Returns whether the list may have changed since the last check, given a change in this
    /// scope.
    pub fn changed(&self, router: &Router, scope: Option<&Scope>) -> bool {
        if scope.is_some_and(|changed| !self.view.scopes().any(|seen| seen == changed)) {
            return false;
        }
        if !self.view.principal.is_limited() {
            return true;
        }
        let now = digest(router, &self.view);
        let mut before = self.digest.lock();
        std::mem::replace(&mut *before, now) != now
    }

    /// Returns whether a change of this provider's documents, or of an unknown one's, may affect
    /// the lists of documents.
    pub fn documents_changed(&self, provider: Option<&ProviderId>) -> bool {
        let principal = &self.view.principal;
        match provider {
            Some(provider) => principal.may_include_from(&provider.id),
            None => !principal.is_limited() || !principal.tools.is_empty(),
        }
    }
}

/// Returns a number that depends on a limited principal's list. Others need none.
fn digest(router: &Router, view: &View) -> u64 {
    if !view.principal.is_limited() {
        return 0;
    }
    let policy = router.policy();
    let list = router
        .directory()
        .list(view, None, usize::MAX - 1, |tool| policy.allows(&view.principal, tool));
    let mut hasher = DefaultHasher::new();
    for shown in list.tools {
        let tool = &shown.tool;
        (&shown.name, &shown.leading, shown.online, &tool.title, &tool.description)
            .hash(&mut hasher);
        let schemas = [
            tool.input.as_ref().map(Schema::raw),
            tool.output.as_ref().map(Schema::raw),
            tool.annotations.as_ref(),
        ];
        schemas.map(|schema| schema.map(RawJson::as_str)).hash(&mut hasher);
    }
    hasher.finish()
}
