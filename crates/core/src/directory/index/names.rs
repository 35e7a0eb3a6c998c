//! Adds a provider's names and its id to the index, and removes them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Claim, Claims, Index, Kind, Member, Offer, Owner, ScopeIndex};
use crate::directory::SavedProvider;
use crate::naming;
use crate::principal::Scope;
use crate::provider::{Grant, ProviderId};
use crate::tool::{Catalog, Tool};

/// The ages of the first claims to each of a provider's tools and prefixes.
#[derive(Default)]
pub(super) struct Ages {
    tools: HashMap<Arc<str>, Arc<Offer>>,
    prefixes: HashMap<Arc<str>, u64>,
}

impl Ages {
    /// Returns the ages of a saved provider.
    pub(super) fn saved(saved: &SavedProvider) -> Self {
        let offer = |tool: &Arc<Tool>, age| {
            let (plain, suffixed) = ("".into(), "".into());
            Arc::new(Offer { tool: Arc::clone(tool), plain, suffixed, age })
        };
        Self {
            tools: saved
                .tools
                .iter()
                .map(|(tool, age)| (Arc::clone(&tool.name), offer(tool, *age)))
                .collect(),
            prefixes: saved.prefixes.iter().cloned().collect(),
        }
    }

    /// Returns the age of a tool with the same names.
    fn of_tool(&self, tool: &Tool) -> Option<u64> {
        self.tools
            .get(&tool.name)
            .filter(|before| before.tool.preferred_name == tool.preferred_name)
            .map(|before| before.age)
    }
}

impl Owner {
    pub(super) fn new(id: ProviderId, grant: Grant, scope: Scope, age: u64) -> Self {
        let space = naming::space(&id.id).map_or_else(|| Arc::clone(&id.id), Into::into);
        Self { id, grant, scope, age, space }
    }
}

impl Index {
    pub(super) fn ages(&self, id: &ProviderId) -> Ages {
        let Some(member) = self.members.get(id) else { return Ages::default() };
        Ages {
            tools: member
                .offers
                .iter()
                .map(|offer| (Arc::clone(&offer.tool.name), Arc::clone(offer)))
                .collect(),
            prefixes: member.prefixes.iter().cloned().collect(),
        }
    }

    /// Adds a provider's tools and prefixes. Claims in `before` keep their age, all others get
    /// `age`. Duplicates in the list count once.
    pub(super) fn insert_claims(
        &mut self,
        id: &ProviderId,
        catalog: Catalog,
        before: &Ages,
        age: u64,
    ) {
        let weight = catalog.weight();
        let Some(member) = self.members.get_mut(id) else { return };
        let mut seen = HashSet::with_capacity(catalog.tools.len());
        let tools = catalog.tools.into_iter().filter(|tool| seen.insert(Arc::clone(&tool.name)));
        let offers = tools.map(|tool| {
            let age = before.of_tool(&tool).unwrap_or(age);
            let (plain, suffixed) = tool.exposed_names(id);
            Arc::new(Offer {
                tool: Arc::new(tool),
                plain: plain.into(),
                suffixed: suffixed.into(),
                age,
            })
        });
        member.offers = offers.collect();
        let mut prefixes: Vec<Arc<str>> = catalog.prefixes.into_iter().map(Into::into).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let aged =
            |prefix: Arc<str>| (before.prefixes.get(&prefix).copied().unwrap_or(age), prefix);
        member.prefixes =
            prefixes.into_iter().map(aged).map(|(age, prefix)| (prefix, age)).collect();
        member.weight = weight + member.about.len();
        member.permit = catalog.permit;
        member.bare_names = catalog.bare_names;
        member.preferred = catalog.preferred;
        member.unlisted = catalog.unlisted;
        member.saved = catalog.saved;
        if catalog.saved {
            self.unsaved.changed(id);
        }
        let scope = member.owner.scope.clone();
        let claims = self.members.get(id).map(Member::claims).unwrap_or_default();
        if claims.is_empty() {
            return;
        }
        let index = self.scopes.entry(scope).or_default();
        for (name, claim, covers) in claims {
            if covers {
                index.insert_spelling(&name);
                match index.prefixes.entry(name) {
                    Entry::Occupied(mut claims) => claims.get_mut().insert(claim),
                    Entry::Vacant(vacant) => drop(vacant.insert(Claims::One(claim))),
                }
            } else {
                match index.names.get_mut(&name) {
                    Some(claims) => claims.insert(claim),
                    None => drop(index.names.insert(name, Claims::One(claim))),
                }
            }
        }
    }

    pub(super) fn withdraw_names(&mut self, id: &ProviderId) {
        let Some(claims) = self.members.get(id).map(Member::claims) else { return };
        let Some(member) = self.members.get_mut(id) else { return };
        member.offers = Vec::new();
        member.prefixes = Vec::new();
        let scope = member.owner.scope.clone();
        let Some(index) = self.scopes.get_mut(&scope) else { return };
        for (name, claim, covers) in claims {
            if covers {
                if index.prefixes.get_mut(&name).is_some_and(|claims| claims.remove(&claim)) {
                    index.prefixes.remove(&name);
                    index.remove_spelling(&name);
                }
            } else if index.names.get_mut(&name).is_some_and(|claims| claims.remove(&claim)) {
                index.names.remove(&name);
            }
        }
        if index.is_empty() {
            self.scopes.remove(&scope);
        }
    }

    /// Returns the other providers that everyone can see and that have the same id in exposed
    /// names.
    pub(super) fn rivals_for_id(&self, owner: &Owner) -> Vec<Arc<Owner>> {
        let same = self.ids.get(&owner.space).filter(|_| owner.scope == Scope::Everyone);
        same.into_iter().flatten().filter(|other| other.id != owner.id).cloned().collect()
    }

    pub(super) fn insert_id(&mut self, owner: &Arc<Owner>) {
        if owner.scope == Scope::Everyone {
            // Nearly every id has one provider.
            self.ids
                .entry(Arc::clone(&owner.space))
                .or_insert_with(|| Vec::with_capacity(1))
                .push(Arc::clone(owner));
        }
    }

    pub(super) fn remove_id(&mut self, owner: &Owner) {
        if let Some(owners) = self.ids.get_mut(&owner.space) {
            owners.retain(|other| other.id != owner.id);
            if owners.is_empty() {
                self.ids.remove(&owner.space);
            }
        }
    }
}

impl Member {
    /// Returns its claims: the name, the claim, and whether it covers the names below.
    pub(super) fn claims(&self) -> Vec<(Arc<str>, Claim, bool)> {
        let mut claims = Vec::with_capacity(3 * self.offers.len() + 2 * self.prefixes.len());
        let bare = if self.preferred { Kind::PreferredBare } else { Kind::Bare };
        let bare = self.bare_names.then_some(bare);
        for offer in &self.offers {
            for (name, kind) in offer.names(bare) {
                // Hosts are ordered by their own age.
                let age = if kind.is_bare() { self.owner.age } else { offer.age };
                let claim = Claim {
                    owner: Arc::clone(&self.owner),
                    offer: Some(Arc::clone(offer)),
                    kind,
                    age,
                };
                claims.push((Arc::clone(name), claim, false));
            }
        }
        let described: HashSet<&str> = if self.prefixes.is_empty() {
            HashSet::new()
        } else {
            self.offers.iter().map(|offer| &*offer.tool.name).collect()
        };
        for (prefix, age) in &self.prefixes {
            let claim =
                Claim { owner: Arc::clone(&self.owner), offer: None, kind: Kind::Named, age: *age };
            let dotted = prefix.contains('.');
            // If the provider describes a tool under the same name, a call of that name means the
            // tool.
            if !described.contains(&**prefix) && (self.bare_names || dotted) {
                let kind = if dotted { Kind::Named } else { Kind::Open };
                claims.push((Arc::clone(prefix), Claim { kind, ..claim.clone() }, false));
            }
            claims.push((Arc::clone(prefix), claim, true));
        }
        claims
    }
}

impl Offer {
    /// Returns the names that the tool claims, each once. A host's undotted names are `bare`.
    pub(in crate::directory) fn names(
        &self,
        bare: Option<Kind>,
    ) -> impl Iterator<Item = (&Arc<str>, Kind)> {
        let own = match (self.tool.name.contains('.'), self.tool.open) {
            (true, _) => Some(Kind::Named),
            (false, true) => bare.map(|_| Kind::Open),
            (false, false) => bare,
        };
        // An undotted capability that is listed under its own name looks like a host's tool.
        let plain =
            if self.tool.open && self.tool.name == self.plain { Kind::Open } else { Kind::Named };
        let own = own.filter(|_| self.tool.name != self.plain).map(|kind| (&self.tool.name, kind));
        let short = self
            .tool
            .short
            .as_ref()
            .filter(|short| **short != self.plain && **short != self.tool.name);
        let short = short.map(|short| (short, Kind::Short));
        [(&self.plain, plain), (&self.suffixed, Kind::Suffixed)].into_iter().chain(own).chain(short)
    }
}

impl ScopeIndex {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }
}
