//! What the directory holds, and how it changes. All under one lock, all without waiting.

mod claims;
mod names;
mod views;
mod wishes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) use self::claims::Claims;
use self::claims::Rank;
use self::names::{ByKind, Names, Withdrawn};
use self::wishes::Wishes;
use super::AttachError;
use crate::budget::Permit;
use crate::documents::Documents;
use crate::json::RawJson;
use crate::limits::Slots;
use crate::principal::Scope;
use crate::provider::{GrantId, Provider, ProviderId};
use crate::tool::{Catalog, Tool};

#[derive(Default)]
pub(super) struct Index {
    members: HashMap<ProviderId, Member>,
    pub(super) scopes: HashMap<Scope, ScopeIndex>,
    /// How many scopes of each kind expose a name, so that no view sees one name twice.
    exposed: HashMap<Arc<str>, ByKind>,
    /// By a plain name: the tools that go by a longer one, because they could not have it.
    wanted: HashMap<Arc<str>, Wishes>,
    /// Counts admissions: tells registrations of one id apart, and gives each member its age.
    counter: u64,
    /// Counts how often it was asked whether a tool may have a name.
    #[cfg(test)]
    pub(super) asked: std::sync::atomic::AtomicUsize,
}

#[derive(Default)]
pub(super) struct ScopeIndex {
    pub(super) exposed: BTreeMap<Arc<str>, Listed>,
    /// Longer names of tools that have got the plain one since, and that one.
    pub(super) former: HashMap<Arc<str>, Arc<str>>,
    /// By a provider's own name or prefix.
    pub(super) claims: HashMap<String, Claims>,
    /// By the undotted name of a host's tool. Every host has a `Bash`, so that these are nobody's own: one after another
    /// stands in for the first.
    pub(super) bare: HashMap<String, Claims>,
    /// By the short name of a tool whose name carries its provider's.
    pub(super) short: HashMap<Arc<str>, Vec<Claim>>,
    /// By a tool's own name: the plain names that such tools want and do not have.
    wanting: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

pub(super) struct Listed {
    pub(super) member: ProviderId,
    pub(super) tool: Arc<Tool>,
    /// The plain name that it would go by, if it could.
    wants: Option<Arc<str>>,
    /// The longer name that it went by before it got the plain one.
    pub(super) former: Option<Arc<str>>,
}

pub(super) struct Claim {
    pub(super) member: ProviderId,
    /// The exposed name, for a described tool; `None` is a prefix.
    pub(super) tool: Option<(Arc<str>, Arc<Tool>)>,
}

pub(super) struct Member {
    pub(super) id: ProviderId,
    pub(super) grant: GrantId,
    /// The lower, the longer it has been here; kept over reconnects.
    pub(super) age: u64,
    pub(super) presence: Presence,
    generation: u64,
    pub(super) scope: Scope,
    pub(super) bare_names: bool,
    preferred: bool,
    /// What it has is not known yet.
    unlisted: bool,
    exposed: Vec<Arc<str>>,
    claims: Vec<String>,
    /// The undotted names of its tools. One that has any is a host.
    bare: Vec<String>,
    prefixes: Vec<String>,
    about: RawJson,
    /// About how many bytes it takes.
    weight: usize,
    /// Its place below a ceiling that it shares with others.
    pub(super) room: Option<Arc<Permit>>,
}

/// How much of those who left is kept, by number and by the size of what they had introduced themselves with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remembered {
    pub(super) members: usize,
    pub(super) bytes: usize,
}

pub(super) enum Presence {
    Online {
        provider: Arc<dyn Provider>,
        slots: Arc<Slots>,
        since: Instant,
        replaced: CancellationToken,
    },
    Offline {
        at: Instant,
        why: Leaving,
        /// Those of a provider that will be back.
        documents: Option<Arc<dyn Documents>>,
    },
}

/// Why a provider is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It will be back, however long that takes; its names are kept for as long as its registration is.
    Kept,
    /// It was lost, as it is when it breaks, or when its machine is gone.
    Lost,
    /// It said that it leaves, as one does that somebody stops.
    Stopped,
}

impl Member {
    pub(super) fn new(id: ProviderId, scope: Scope, grant: GrantId, about: RawJson, presence: Presence) -> Self {
        Self {
            id,
            grant,
            age: 0,
            presence,
            generation: 0,
            scope,
            bare_names: false,
            preferred: false,
            unlisted: false,
            exposed: Vec::new(),
            claims: Vec::new(),
            bare: Vec::new(),
            prefixes: Vec::new(),
            about,
            weight: 0,
            room: None,
        }
    }

    /// Whether what both claim is this one's: it has a grant and the other has none, or it was here first.
    pub(super) fn goes_before(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }

    /// Where it stands among those who claim the same, the lower the better.
    fn rank(&self) -> Rank {
        (self.grant.is_none(), self.age)
    }

    pub(super) fn is_online(&self) -> bool {
        matches!(self.presence, Presence::Online { .. })
    }

    /// The order in which hosts are asked for a bare name, the first one first: who is here; whom the operator wants; who
    /// has a grant; who has been here longest.
    pub(super) fn host_order(&self) -> (bool, bool, bool, u64) {
        (!self.is_online(), !self.preferred, self.grant.is_none(), self.age)
    }
}

impl Index {
    pub(super) fn member(&self, id: &ProviderId) -> Option<&Member> {
        self.members.get(id)
    }

    pub(super) fn exposed_name(&self, id: &ProviderId, own: &str) -> Option<Arc<str>> {
        let member = self.members.get(id)?;
        let scope = self.scopes.get(&member.scope)?;
        let of_own = |name: &&Arc<str>| scope.exposed.get(*name).is_some_and(|listed| &*listed.tool.name == own);
        member.exposed.iter().find(of_own).cloned()
    }

    /// A provider of this id, in this scope, that has not listed its tools yet.
    pub(super) fn unlisted(&self, id: &str, scope: &Scope) -> Option<&Member> {
        self.members.values().find(|member| member.unlisted && *member.id.id == *id && member.scope == *scope)
    }

    /// Returns the new registration's generation.
    pub(super) fn admit(
        &mut self,
        mut member: Member,
        catalog: Catalog,
        may_take_over: bool,
    ) -> Result<u64, AttachError> {
        self.counter += 1;
        member.generation = self.counter;
        member.age = self.counter;
        let (mut is_new, mut moves) = (true, false);
        if let Some(old) = self.members.get(&member.id) {
            moves = old.grant != member.grant || old.scope != member.scope;
            match (old.grant == member.grant, may_take_over, old.grant.is_none()) {
                // The same provider again. A grant for this very id says so, too: it would lose what it holds to whoever
                // waits for it, only because its token was rotated.
                (true, ..) | (_, true, false) => (member.age, is_new) = (old.age, false),
                // What somebody held who showed nothing was never this one's; the newcomer's names and claims are new.
                (.., true) => {}
                (false, false, false) => return Err(AttachError::HeldByAnother(member.id)),
            }
        }
        let generation = member.generation;
        let id = member.id.clone();
        let before = self.withdraw_names(&id);
        if let Some(old) = self.members.insert(id.clone(), member)
            && let Presence::Online { slots, replaced, .. } = old.presence
        {
            slots.close();
            replaced.cancel();
        }
        let none = Names::default();
        self.enter(&id, catalog, if is_new { &none } else { &before.names });
        if moves {
            // Whatever it claims, it claims elsewhere, or by another right.
            self.settle_all();
        } else {
            self.release(&before, &id);
        }
        Ok(generation)
    }

    pub(super) fn publish(&mut self, id: &ProviderId, generation: u64, catalog: Catalog) -> bool {
        if !self.is_current(id, generation) {
            return false;
        }
        let before = self.withdraw_names(id);
        self.enter(id, catalog, &before.names);
        self.release(&before, id);
        true
    }

    pub(super) fn detach(&mut self, id: &ProviderId, generation: u64, why: Leaving) -> bool {
        if !self.is_current(id, generation) {
            return false;
        }
        let Some(member) = self.members.get(id) else { return false };
        let (at, documents) = match &member.presence {
            Presence::Online { slots, provider, .. } => {
                slots.close();
                (Instant::now(), provider.documents())
            }
            // Only one that was to come back can still be lost.
            Presence::Offline { why: before, .. } if *before == why || *before != Leaving::Kept => return false,
            Presence::Offline { at, documents, .. } => (*at, documents.clone()),
        };
        let presence = Presence::Offline { at, why, documents: documents.filter(|_| why == Leaving::Kept) };
        // Whose turn it is to have a name depends on who is here.
        let wishes = self.take_wishes(id);
        if let Some(member) = self.members.get_mut(id) {
            member.presence = presence;
        }
        self.put_wishes(id, wishes);
        true
    }

    pub(super) fn withdraw(&mut self, id: &ProviderId, generation: u64) -> bool {
        if !self.is_current(id, generation) {
            return false;
        }
        let withdrawn = self.remove(id);
        self.release(&withdrawn, id);
        true
    }

    /// `true` when somebody was forgotten. What is remembered is bounded for each grant by itself, so that nobody can
    /// push another one out of memory by coming and going.
    pub(super) fn forget_expired(&mut self, memory: Duration, most: Remembered) -> bool {
        let mut gone: Vec<(Instant, &Member)> = self
            .members
            .values()
            .filter_map(|member| match member.presence {
                Presence::Offline { why: Leaving::Kept, .. } | Presence::Online { .. } => None,
                Presence::Offline { at, .. } => Some((at, member)),
            })
            .collect();
        gone.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut kept: HashMap<&GrantId, Remembered> = HashMap::new();
        let mut expired = Vec::new();
        for (at, member) in gone {
            let sum = kept.entry(&member.grant).or_default();
            sum.members += 1;
            sum.bytes += member.weight;
            if sum.members > most.members || sum.bytes > most.bytes || at.elapsed() >= memory {
                expired.push(member.id.clone());
            }
        }
        self.forget(&expired)
    }

    /// Forgets those who came by this grant and are away: it is worth nothing any more.
    pub(super) fn forget_grant(&mut self, grant: &GrantId) -> bool {
        let gone = self.members.values().filter(|member| member.grant == *grant && !member.is_online());
        let gone: Vec<ProviderId> = gone.map(|member| member.id.clone()).collect();
        self.forget(&gone)
    }

    fn forget(&mut self, gone: &[ProviderId]) -> bool {
        // First all of them: what one lets go of is not for another that goes as well.
        let withdrawn: Vec<_> = gone.iter().map(|id| (id, self.remove(id))).collect();
        for (id, withdrawn) in &withdrawn {
            self.release(withdrawn, id);
        }
        !gone.is_empty()
    }

    fn is_current(&self, id: &ProviderId, generation: u64) -> bool {
        self.members.get(id).is_some_and(|member| member.generation == generation)
    }

    fn remove(&mut self, id: &ProviderId) -> Withdrawn {
        let withdrawn = self.withdraw_names(id);
        if let Some(Member { presence: Presence::Online { slots, .. }, .. }) = self.members.remove(id) {
            slots.close();
        }
        withdrawn
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.scopes.is_empty() && self.exposed.is_empty() && self.wanted.is_empty()
    }
}
