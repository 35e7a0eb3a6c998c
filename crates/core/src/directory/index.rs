//! The state of the directory and its changes. All changes happen under one lock, without waiting.

mod claims;
mod contests;
mod holders;
mod names;
mod spellings;
mod views;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) use self::claims::{Claim, Claims, Kind, Offer, Owner};
pub(super) use self::contests::Contest;
pub(super) use self::holders::{Held, prefixes};
use self::names::Ages;
use super::definitions::{AcceptError, Accepted, Definitions, Described, Report};
use super::saved::{SavedProvider, Unsaved, ago};
use super::{Attach, AttachError};
use crate::documents::Documents;
use crate::limits::Slots;
#[cfg(test)]
use crate::naming;
use crate::principal::Scope;
use crate::provider::{Grant, Provider, ProviderId};
use crate::tool::Catalog;
use sa_limits::budget::Permit;
use sa_text::json::RawJson;

#[derive(Default)]
pub(super) struct Index {
    members: HashMap<ProviderId, Member>,
    pub(super) scopes: HashMap<Scope, ScopeIndex>,
    /// The providers that everyone can see, by their ids as written in exposed names.
    ids: HashMap<Arc<str>, Vec<Arc<Owner>>>,
    /// The greatest age that was assigned or supplied.
    newest: u64,
    /// Distinguishes the registrations of one id.
    generation: u64,
    pub(super) definitions: Definitions,
    pub(super) unsaved: Unsaved,
}

/// The names of one scope.
#[derive(Default)]
pub(super) struct ScopeIndex {
    /// Exposed names with and without a suffix, own names, open prefixes, bare names and short
    /// names.
    pub(super) names: BTreeMap<Arc<str>, Claims>,
    /// Open prefixes, for the names below them.
    pub(super) prefixes: HashMap<Arc<str>, Claims>,
    /// The same prefixes by their spelling with underscores for dots, sorted.
    spelled: HashMap<Arc<str>, Vec<Arc<str>>>,
}

pub(super) struct Member {
    pub(super) owner: Arc<Owner>,
    pub(super) presence: Presence,
    generation: u64,
    pub(super) unlisted: bool,
    pub(super) bare_names: bool,
    pub(super) preferred: bool,
    /// Whether it is remembered across restarts.
    pub(super) saved: bool,
    pub(super) offers: Vec<Arc<Offer>>,
    /// Its open prefixes with the ages of their first claims.
    pub(super) prefixes: Vec<(Arc<str>, u64)>,
    pub(super) about: RawJson,
    /// The number of changes that it announced without a new catalog.
    announced: u64,
    /// The approximate memory size in bytes.
    weight: usize,
    /// Its share of a budget for all providers of its kind.
    pub(super) permit: Option<Arc<Permit>>,
}

/// The limits of remembered offline providers of one grant.
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
        why: OfflineReason,
        /// The documents of a provider that is expected back.
        documents: Option<Arc<dyn Documents>>,
    },
}

/// The reason why a provider is offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfflineReason {
    /// It is expected back after any time. Its names are reserved while its registration lives.
    Expected,
    /// Its connection was lost.
    Lost,
    /// It announced that it stops.
    Stopped,
}

/// A new registration.
pub(super) struct Admitted {
    pub(super) generation: u64,
    pub(super) changed: Changed,
}

/// The changes of a list that an operator should know.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) contests: Vec<Contest>,
    pub(super) definitions: Report,
}

impl Member {
    pub(super) fn is_online(&self) -> bool {
        matches!(self.presence, Presence::Online { .. })
    }

    fn catalog(&self) -> Catalog {
        Catalog {
            tools: self.offers.iter().map(|offer| (*offer.tool).clone()).collect(),
            prefixes: self.prefixes.iter().map(|(prefix, _)| prefix.to_string()).collect(),
            bare_names: self.bare_names,
            preferred: self.preferred,
            unlisted: self.unlisted,
            // These tools have been reviewed already.
            watched: false,
            saved: self.saved,
            permit: self.permit.clone(),
        }
    }

    /// Returns a digest of its catalog.
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.offers.iter().for_each(|offer| offer.tool.hash(&mut hasher));
        self.prefixes.iter().for_each(|(prefix, _)| prefix.hash(&mut hasher));
        (self.bare_names, self.preferred, self.unlisted).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether bare names can run on this provider.
    fn is_host(&self) -> bool {
        self.bare_names
            && self.offers.iter().any(|offer| !offer.tool.name.contains('.') && !offer.tool.open)
    }
}

impl Index {
    pub(super) fn member(&self, id: &ProviderId) -> Option<&Member> {
        self.members.get(id)
    }

    /// Returns the age for the next event without a supplied age.
    pub(super) fn next_age(&self) -> u64 {
        self.newest + 1
    }

    pub(super) fn admit(
        &mut self,
        attach: Attach,
        described: Vec<Described>,
        age: u64,
        replaced: CancellationToken,
    ) -> Result<Admitted, AttachError> {
        let Attach { id, scope, grant, provider, mut catalog, max_running, about, may_take_over } =
            attach;
        self.newest = self.newest.max(age);
        let mut owner = Owner::new(id, grant, scope, age);
        let mut before = None;
        if let Some(old) = self.members.get(&owner.id).map(|old| &old.owner) {
            // A token that is bound to this id continues all its claims, because token rotation
            // must not lose names. A provider without a token passes nothing on.
            let continues = may_take_over && old.grant != Grant::none();
            if old.grant == owner.grant || continues {
                owner.age = old.age;
                before = Some(owner.id.clone());
            } else if (old.grant.rank, old.age) < (owner.grant.rank, age) {
                return Err(AttachError::HeldByAnother(old.id.clone()));
            }
        }
        let rivals = self.rivals_for_id(&owner);
        if let Some(holder) = rivals.iter().find(|other| other.grant.rank < owner.grant.rank) {
            return Err(AttachError::HeldByAnother(holder.id.clone()));
        }
        // The better rank takes the id, even from an older provider.
        let losers = rivals.iter().filter(|other| other.grant.rank > owner.grant.rank);
        let losers: Vec<ProviderId> = losers.map(|other| other.id.clone()).collect();
        let mut contests: Vec<Contest> =
            losers.iter().map(|loser| Contest::for_id(&owner.id, loser)).collect();
        for loser in &losers {
            self.replace(loser);
        }
        self.generation += 1;
        let generation = self.generation;
        let presence = Presence::Online {
            provider,
            slots: Arc::new(Slots::new(max_running)),
            since: Instant::now(),
            replaced,
        };
        let id = owner.id.clone();
        let ages = before.map(|id| self.ages(&id)).unwrap_or_default();
        self.replace(&id);
        let definitions = self.definitions.review(&id, &owner.grant, &mut catalog, described);
        self.insert(owner, presence, generation, about);
        self.insert_claims(&id, catalog, &ages, age);
        contests.extend(self.new_contests(&id, age));
        Ok(Admitted { generation, changed: Changed { contests, definitions } })
    }

    fn insert(&mut self, owner: Owner, presence: Presence, generation: u64, about: RawJson) {
        let owner = Arc::new(owner);
        self.insert_id(&owner);
        let member = Member {
            owner: Arc::clone(&owner),
            presence,
            generation,
            unlisted: false,
            bare_names: false,
            preferred: false,
            saved: false,
            offers: Vec::new(),
            prefixes: Vec::new(),
            about,
            announced: 0,
            weight: 0,
            permit: None,
        };
        self.members.insert(owner.id.clone(), member);
    }

    /// Adds a saved provider as offline. Returns `false` if its id is taken.
    pub(super) fn restore(
        &mut self,
        id: &ProviderId,
        saved: SavedProvider,
        permit: Arc<Permit>,
    ) -> bool {
        let ages = Ages::saved(&saved);
        let SavedProvider {
            grant,
            age,
            tools,
            prefixes,
            bare_names,
            preferred,
            about,
            gone_for,
            stopped,
            ..
        } = saved;
        let owner = Owner::new(id.clone(), grant, Scope::Everyone, age);
        let better =
            self.rivals_for_id(&owner).iter().any(|other| other.grant.rank < owner.grant.rank);
        if self.members.contains_key(id) || better {
            return false;
        }
        let each = tools.iter().map(|(_, age)| *age).chain(prefixes.iter().map(|(_, age)| *age));
        self.newest = each.chain([age, self.newest]).max().unwrap_or(age);
        self.generation += 1;
        let why = if stopped { OfflineReason::Stopped } else { OfflineReason::Lost };
        let presence =
            Presence::Offline { at: ago(gone_for.unwrap_or_default()), why, documents: None };
        self.insert(owner, presence, self.generation, about);
        let catalog = Catalog {
            tools: tools.into_iter().map(|(tool, _)| (*tool).clone()).collect(),
            prefixes: prefixes.into_iter().map(|(prefix, _)| prefix.to_string()).collect(),
            bare_names,
            preferred,
            saved: true,
            permit: Some(permit),
            ..Catalog::default()
        };
        self.insert_claims(id, catalog, &ages, age);
        true
    }

    /// Replaces a provider's catalog. Returns an error if this changes no list: the catalog is the
    /// same, or the registration is not the current one.
    pub(super) fn publish(
        &mut self,
        id: &ProviderId,
        generation: u64,
        mut catalog: Catalog,
        described: Vec<Described>,
        age: u64,
    ) -> Result<Changed, Changed> {
        let Some(member) = self.current(id, generation) else { return Err(Changed::default()) };
        let (grant, before) = (member.owner.grant.clone(), member.digest());
        let definitions = self.definitions.review(id, &grant, &mut catalog, described);
        self.newest = self.newest.max(age);
        let ages = self.ages(id);
        self.withdraw_names(id);
        self.insert_claims(id, catalog, &ages, age);
        let changed = Changed { contests: self.new_contests(id, age), definitions };
        let same = self.members.get(id).is_some_and(|member| member.digest() == before);
        if same { Err(changed) } else { Ok(changed) }
    }

    /// Notes that a provider announces a change.
    pub(super) fn announce(&mut self, id: &ProviderId, generation: u64) -> bool {
        let Some(member) = self.current(id, generation) else { return false };
        member.announced += 1;
        true
    }

    /// Returns the number of changes that a provider announced.
    pub(super) fn announced(&self, id: &ProviderId) -> u64 {
        self.members.get(id).map_or(0, |member| member.announced)
    }

    /// Accepts the changed definition of a tool, and lists it.
    pub(super) fn accept(
        &mut self,
        kind: &str,
        id: &str,
        tool: &str,
        revision: Option<i64>,
    ) -> Result<(), AcceptError> {
        let mut members = self.members.iter();
        let member = members
            .find(|(member, _)| member.kind == kind && *member.id == *id)
            .map(|(_, member)| member);
        let current = member.map(|member| &member.owner.grant);
        let accepted = self.definitions.accept(kind, id, tool, revision, current)?;
        let Some((id, mut catalog)) =
            member.map(|member| (member.owner.id.clone(), member.catalog()))
        else {
            return Ok(());
        };
        match accepted {
            Accepted::Listed => return Ok(()),
            Accepted::Remove => catalog.tools.retain(|listed| *listed.name != *tool),
            Accepted::Replace(accepted) => {
                for listed in catalog.tools.iter_mut().filter(|listed| listed.name == accepted.name)
                {
                    *listed = (*accepted).clone();
                }
            }
        }
        let ages = self.ages(&id);
        self.withdraw_names(&id);
        self.insert_claims(&id, catalog, &ages, self.next_age());
        Ok(())
    }

    pub(super) fn detach(&mut self, id: &ProviderId, generation: u64, why: OfflineReason) -> bool {
        let Some(member) = self.current(id, generation) else { return false };
        let (at, documents) = match &member.presence {
            Presence::Online { slots, provider, .. } => {
                slots.close();
                (Instant::now(), provider.documents())
            }
            // Only a provider in state `Expected` can still change to another offline state.
            Presence::Offline { why: before, .. }
                if *before == why || *before != OfflineReason::Expected =>
            {
                return false;
            }
            Presence::Offline { at, documents, .. } => (*at, documents.clone()),
        };
        member.presence = Presence::Offline {
            at,
            why,
            documents: documents.filter(|_| why == OfflineReason::Expected),
        };
        if member.saved {
            self.unsaved.left(id);
        }
        true
    }

    pub(super) fn withdraw(&mut self, id: &ProviderId, generation: u64) -> bool {
        let Some(grant) = self.current(id, generation).map(|member| member.owner.grant.clone())
        else {
            return false;
        };
        self.definitions.forget(id, &grant);
        if let Some(Presence::Online { slots, .. }) = self.remove(id) {
            slots.close();
        }
        true
    }

    /// Forgets providers beyond the age and size limits. Returns `true` if there were any. The
    /// limits apply to each grant separately, so that no grant can evict another one.
    pub(super) fn forget_expired(&mut self, memory: Duration, most: Remembered) -> bool {
        let mut gone: Vec<(Instant, &Member)> = self
            .members
            .values()
            .filter_map(|member| match member.presence {
                Presence::Offline { why: OfflineReason::Expected, .. }
                | Presence::Online { .. } => None,
                Presence::Offline { at, .. } => Some((at, member)),
            })
            .collect();
        gone.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut kept: HashMap<&Grant, Remembered> = HashMap::new();
        let mut expired = Vec::new();
        for (at, member) in gone {
            let sum = kept.entry(&member.owner.grant).or_default();
            sum.members += 1;
            sum.bytes += member.weight;
            if sum.members > most.members || sum.bytes > most.bytes || at.elapsed() >= memory {
                expired.push(member.owner.id.clone());
            }
        }
        self.forget(&expired)
    }

    /// Returns the offline providers of these grants.
    pub(super) fn absent_of(&self, grants: &HashSet<Grant>) -> impl Iterator<Item = &ProviderId> {
        let absent = self.members.values().filter(|member| !member.is_online());
        absent.filter(|member| grants.contains(&member.owner.grant)).map(|member| &member.owner.id)
    }

    /// Forgets the offline providers of grants that are no longer valid.
    pub(super) fn forget_grants(&mut self, grants: &HashSet<Grant>) -> bool {
        let gone: Vec<ProviderId> = self.absent_of(grants).cloned().collect();
        self.forget(&gone)
    }

    fn forget(&mut self, gone: &[ProviderId]) -> bool {
        for id in gone {
            self.remove(id);
        }
        !gone.is_empty()
    }

    fn current(&mut self, id: &ProviderId, generation: u64) -> Option<&mut Member> {
        self.members.get_mut(id).filter(|member| member.generation == generation)
    }

    /// Removes a provider, and notifies its connection that another one replaced it.
    fn replace(&mut self, id: &ProviderId) {
        if let Some(Presence::Online { replaced, slots, .. }) = self.remove(id) {
            slots.close();
            replaced.cancel();
        }
    }

    fn remove(&mut self, id: &ProviderId) -> Option<Presence> {
        self.withdraw_names(id);
        let member = self.members.remove(id)?;
        if member.saved {
            self.unsaved.changed(id);
        }
        self.remove_id(&member.owner);
        Some(member.presence)
    }

    /// Asserts that the tables hold exactly the claims of all members.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let mut claimed = 0;
        for member in self.members.values() {
            for (name, claim, covers) in member.claims() {
                let scope = &self.scopes[&member.owner.scope];
                let claims = if covers { &scope.prefixes[&name] } else { &scope.names[&name] };
                assert!(
                    !covers || scope.spelled[&*naming::underscored(&name)].contains(&name),
                    "{name}"
                );
                assert!(claims.iter().any(|held| *held == claim), "{name} of {}", member.owner.id);
                assert!(
                    claims.of_grant(&claim.owner).any(|held| *held == claim),
                    "{name} of {}",
                    member.owner.id
                );
                claimed += 1;
            }
            assert!(self.ids.get(&member.owner.space).is_none_or(|owners| !owners.is_empty()));
        }
        let tables = self
            .scopes
            .values()
            .flat_map(|scope| scope.names.values().chain(scope.prefixes.values()));
        assert_eq!(tables.map(|claims| claims.iter().count()).sum::<usize>(), claimed);
        for scope in self.scopes.values() {
            let spelled = scope.spelled.values().map(Vec::len).sum::<usize>();
            assert_eq!(spelled, scope.prefixes.len());
        }
        let everyone =
            self.members.values().filter(|member| member.owner.scope == Scope::Everyone).count();
        assert_eq!(self.ids.values().map(Vec::len).sum::<usize>(), everyone);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.scopes.is_empty() && self.ids.is_empty()
    }
}
