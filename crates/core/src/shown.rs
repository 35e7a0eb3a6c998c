//! Detects changes of tools or documents that a principal can see.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::Mutex;

use crate::principal::{Scope, View};
use crate::provider::ProviderId;
use crate::router::Router;

/// The lists of views with more names than this are not compared for principals that may use all
/// tools. They count as changed by every change, because comparing them would slow down a gateway
/// with thousands of nodes. A described tool has two or three names.
const MAX_COMPARED: usize = 5_000;

/// The list of tools of one view at the last check.
///
/// A notice contains the scope of a change. If the view contains that scope, a digest of the list
/// is compared with the one at the last check.
#[derive(Debug)]
pub struct Shown {
    view: View,
    digest: Mutex<Digest>,
}

/// A digest of a list, or `None` for a list that is not compared.
type Digest = Option<u64>;

/// The digests of lists at one revision of the directory. All principals that may use all tools
/// share them, because the scopes alone determine their lists.
#[derive(Debug, Default)]
pub(crate) struct Digests(Mutex<(u64, HashMap<Vec<Scope>, Digest>)>);

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
        let now = digest(router, &self.view);
        let before = std::mem::replace(&mut *self.digest.lock(), now);
        now.is_none() || before != now
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

fn digest(router: &Router, view: &View) -> Digest {
    let principal = &view.principal;
    if principal.is_limited() || !principal.role.may_call_tools() {
        return Some(digest_of(router, view));
    }
    // The list that is read below is at least as new.
    let revision = router.directory().revision();
    let mut shared = router.digests.0.lock();
    if shared.0 != revision {
        *shared = (revision, HashMap::new());
    }
    *shared.1.entry(view.scopes.clone()).or_insert_with(|| {
        let is_small = router.directory().names(view) <= MAX_COMPARED;
        is_small.then(|| digest_of(router, view))
    })
}

/// Returns a number that depends on the list of a view.
fn digest_of(router: &Router, view: &View) -> u64 {
    let (directory, policy) = (router.directory(), router.policy());
    let list =
        directory.list(view, None, usize::MAX - 1, |tool| policy.allows(&view.principal, tool));
    let mut hasher = DefaultHasher::new();
    for shown in &list.tools {
        (&shown.name, &shown.leading, shown.online, &*shown.tool).hash(&mut hasher);
    }
    let providers: BTreeSet<_> = list.tools.iter().map(|shown| &shown.provider).collect();
    for id in providers {
        (id, directory.announced(id)).hash(&mut hasher);
    }
    hasher.finish()
}
