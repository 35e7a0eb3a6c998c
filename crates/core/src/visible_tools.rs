//! Detects changes of tools or documents that a principal can see.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::directory::ToolView;
use crate::principal::{Principal, Scope, View};
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
pub struct VisibleTools {
    view: View,
    digest: Mutex<Digest>,
}

/// The lists of tools of one principal in every narrow scope at the last check, without the tools
/// for everyone.
#[derive(Debug)]
pub struct VisibleNarrowTools {
    principal: Arc<Principal>,
    /// A scope without an entry has an empty list.
    digests: Mutex<HashMap<Scope, Digest>>,
}

/// A digest of a list, or `None` for a list that is not compared.
type Digest = Option<u64>;

/// The digests of lists at one revision of the directory. All principals that may use all tools
/// share them, because the scopes alone determine their lists.
///
/// The lock is not held while a list is read. Only readers of the same list wait for each other.
#[derive(Debug, Default)]
pub(crate) struct Digests(Mutex<AtRevision>);

#[derive(Debug, Default)]
struct AtRevision {
    revision: u64,
    digests: HashMap<Key, Arc<OnceLock<Digest>>>,
}

/// The scopes of a view, and the part of its list.
type Key = (Part, Vec<Scope>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    All,
    /// The list without the tools for everyone.
    Narrow,
}

impl Digests {
    /// Returns the digest of a list. It is computed at most once at each revision.
    fn get(&self, revision: u64, key: Key, compute: impl FnOnce() -> Digest) -> Digest {
        let mut shared = self.0.lock();
        // A list that is newer than the revision may be used as well.
        if shared.revision < revision {
            *shared = AtRevision { revision, digests: HashMap::new() };
        }
        let digest = Arc::clone(shared.digests.entry(key).or_default());
        drop(shared);
        *digest.get_or_init(compute)
    }
}

impl VisibleTools {
    pub fn new(router: &Router, view: View) -> Self {
        let digest = Mutex::new(digest(router, &view, Part::All));
        Self { view, digest }
    }

    /// Returns whether the list may have changed since the last check, given a change in this
    /// scope.
    pub fn changed(&self, router: &Router, scope: Option<&Scope>) -> bool {
        if scope.is_some_and(|changed| !self.view.scopes().any(|seen| seen == changed)) {
            return false;
        }
        let now = digest(router, &self.view, Part::All);
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

impl VisibleNarrowTools {
    /// Reads the lists in the scopes that the principal may see. If these are long, only the first
    /// lists are read. The others count as changed by their next change.
    pub fn new(
        router: &Router,
        principal: Arc<Principal>,
        may_see: impl Fn(&Scope) -> bool,
    ) -> Self {
        let (directory, mut names) = (router.directory(), 0);
        let mut digests = HashMap::new();
        for scope in directory.narrow_scopes().into_iter().filter(may_see) {
            names += directory.names(std::iter::once(&scope));
            let digest =
                if names > MAX_COMPARED { None } else { narrow_digest(router, &principal, &scope) };
            digests.insert(scope, digest);
        }
        Self { principal, digests: Mutex::new(digests) }
    }

    /// Returns whether the list in this scope may have changed since the last check, given a change
    /// in the scope and whether the principal may see the scope.
    pub fn changed(&self, router: &Router, scope: &Scope, may_see: bool) -> bool {
        let now = if may_see { narrow_digest(router, &self.principal, scope) } else { EMPTY };
        let mut digests = self.digests.lock();
        let before = match now {
            EMPTY => digests.remove(scope),
            _ => digests.insert(scope.clone(), now),
        };
        may_see && (now.is_none() || before.unwrap_or(EMPTY) != now)
    }
}

/// The digest of an empty list.
const EMPTY: Digest = Some(0);

fn narrow_digest(router: &Router, principal: &Arc<Principal>, scope: &Scope) -> Digest {
    let view = View { principal: Arc::clone(principal), scopes: vec![scope.clone()] };
    digest(router, &view, Part::Narrow)
}

fn digest(router: &Router, view: &View, part: Part) -> Digest {
    let (directory, principal) = (router.directory(), &view.principal);
    if principal.is_limited() || !principal.role.may_call_tools() {
        return Some(digest_of(router, view, part));
    }
    // The list that is read below is at least as new.
    let revision = directory.revision();
    router.digests.get(revision, (part, view.scopes.clone()), || {
        let names = match part {
            Part::All => directory.names(view.scopes()),
            Part::Narrow => directory.names(view.scopes.iter()),
        };
        (names <= MAX_COMPARED).then(|| digest_of(router, view, part))
    })
}

/// Returns a number that depends on the list of a view.
fn digest_of(router: &Router, view: &View, part: Part) -> u64 {
    let (directory, policy) = (router.directory(), router.policy());
    let keep = |tool: &ToolView| policy.allows(&view.principal, tool);
    let tools = match part {
        Part::All => directory.list(view, None, usize::MAX - 1, keep).tools,
        Part::Narrow => directory.list_narrow(view, keep),
    };
    if tools.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for view in &tools {
        (&view.name, &view.leading, view.online, &*view.tool).hash(&mut hasher);
    }
    let providers: BTreeSet<_> = tools.iter().map(|view| &view.provider).collect();
    for id in providers {
        (id, directory.announced(id)).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_once_at_each_revision_and_without_the_lock() {
        let digests = Digests::default();
        let key = |name: &str| (Part::All, vec![Scope::Session(name.into())]);
        let first = digests.get(1, key("a"), || {
            // Another list is read at the same time.
            assert!(digests.0.try_lock().is_some(), "no lock is held");
            digests.get(1, key("b"), || Some(2))
        });
        assert_eq!(first, Some(2));
        assert_eq!(digests.get(1, key("b"), || panic!("it is known")), Some(2));
        assert_eq!(digests.get(2, key("b"), || Some(3)), Some(3));
        assert_eq!(digests.get(1, key("b"), || panic!("a newer one is known")), Some(3));
    }
}
