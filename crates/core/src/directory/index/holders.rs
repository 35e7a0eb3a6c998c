//! Determines which claim holds a name.
//!
//! The result is not stored. It follows from the claims alone, so it does not depend on the order
//! in which they were made.

use std::sync::Arc;

use super::{Claim, Claims, Index, Kind, Offer, Owner, ScopeIndex};
use crate::naming;
use crate::principal::View;
use crate::provider::Rank;

/// A name that a grant holds.
#[derive(Clone, Copy)]
pub(in crate::directory) struct Held<'i> {
    pub(in crate::directory) scope: &'i ScopeIndex,
    /// The claims among which a provider is selected: those to the name itself, or to the grant's
    /// longest prefix above it.
    pub(in crate::directory) claims: &'i Claims,
    /// The oldest of the grant's claims among these.
    pub(in crate::directory) by: &'i Claim,
}

impl Held<'_> {
    /// Returns whether a described tool is listed by this name.
    fn is_listing(&self, name: &str) -> bool {
        let listing = self.by.kind == Kind::Suffixed || self.by.kind.is_named();
        self.by.offer.is_some() && listing && !name.contains('.')
    }

    fn is(&self, owner: &Owner, offer: &Offer) -> bool {
        let same_tool =
            self.by.offer.as_ref().is_some_and(|held| held.tool.name == offer.tool.name);
        self.by.is_of(owner) && same_tool
    }
}

impl Index {
    pub(in crate::directory) fn scopes_of<'i>(&'i self, view: &View) -> Vec<&'i ScopeIndex> {
        view.scopes().filter_map(|scope| self.scopes.get(scope)).collect()
    }

    /// Returns the claim that holds a name among these scopes, narrowest scope first.
    pub(in crate::directory) fn held_among<'i>(
        &'i self,
        scopes: impl IntoIterator<Item = &'i ScopeIndex>,
        name: &str,
    ) -> Option<Held<'i>> {
        let held = scopes.into_iter().filter_map(|scope| self.held(scope, name));
        // Listed names have precedence in any scope: a provider in a narrower scope must not take a
        // listed name with its own name. Among own names the narrowest scope decides, even if its
        // provider is offline. A call for a session's own machine must not run on a shared one.
        held.min_by_key(|held| match (held.is_listing(name), held.by.kind) {
            (true, _) => (held.by.rank(), 0, held.by.age),
            (false, kind) => (held.by.rank(), if kind == Kind::Short { 2 } else { 1 }, 0),
        })
    }

    /// Returns the claim that holds a name in one scope.
    pub(in crate::directory) fn held<'i>(
        &'i self,
        scope: &'i ScopeIndex,
        name: &str,
    ) -> Option<Held<'i>> {
        if name.contains('.') {
            return self.held_above(scope, name);
        }
        let claims = scope.names.get(name)?;
        let by = claims.iter().find(|claim| self.blocked_by(scope, name, claim).is_none())?;
        let contested = by.kind == Kind::Named || by.kind.is_bare();
        let by =
            if contested { self.older_open(scope, name, claims, by).unwrap_or(by) } else { by };
        Some(Held { scope, claims, by })
    }

    /// Returns the undotted open prefix that holds a name although `first` is of an earlier kind.
    /// It must be older than every tool with that name. A host's tool does not take a name that is
    /// already listed, and an open prefix does not take a host's name. A name in the style of hosts
    /// (`Bash`) is reserved for hosts, so that no other provider can claim it first.
    fn older_open<'i>(
        &self,
        scope: &ScopeIndex,
        name: &str,
        claims: &'i Claims,
        first: &Claim,
    ) -> Option<&'i Claim> {
        let mut open = claims.of_kind(&first.owner, Kind::Open);
        let open = open.find(|claim| self.blocked_by(scope, name, claim).is_none())?;
        let hosts = [Kind::PreferredBare, Kind::Bare].into_iter();
        let mut hosts =
            hosts.filter_map(|kind| claims.of_kind(&first.owner, kind).next()?.offer.as_ref());
        let before_hosts = hosts.all(|offer| !naming::is_of_host(name) && open.age < offer.age);
        (before_hosts && (first.kind.is_bare() || open.age < first.age)).then_some(open)
    }

    /// Does the same for a dotted name, which also belongs to the open prefixes above it. The best
    /// claim that covers the name determines the grant. Within the grant the longest match counts.
    fn held_above<'i>(&'i self, scope: &'i ScopeIndex, name: &str) -> Option<Held<'i>> {
        let levels = || {
            let above = prefixes(name).skip(1).filter_map(|prefix| scope.prefixes.get(prefix));
            scope.names.get(name).into_iter().chain(above)
        };
        let firsts = levels().filter_map(|claims| {
            claims.iter().find(|claim| self.space_owner(name, claim).is_none())
        });
        let best = firsts.min_by_key(|claim| claim.seniority())?;
        let mut longest =
            levels().filter_map(|claims| Some((claims, claims.of_grant(&best.owner).next()?)));
        longest.next().map(|(claims, by)| Held { scope, claims, by })
    }

    /// Returns the provider that excludes a claim from a name, even if no other provider claims
    /// that exact name. It holds a prefix above the tool's own name, or its id is the first part of
    /// the name. Such a name is not used with a suffix either, because an operator's pattern may
    /// match all names with this beginning.
    pub(in crate::directory) fn blocked_by<'i>(
        &'i self,
        scope: &'i ScopeIndex,
        name: &str,
        claim: &Claim,
    ) -> Option<&'i Owner> {
        if claim.rank() == Rank::Installed {
            return None;
        }
        let own = match &claim.offer {
            Some(offer) => {
                Some(&*offer.tool.name).filter(|own| own.contains('.') || offer.tool.open)
            }
            None => Some(name),
        };
        let above = || {
            let best = scope.best_above(own?)?;
            best.precedes(claim).then_some(&*best.owner)
        };
        // `macos_notes_x` is below `macos.notes`, whichever provider has a tool `macos.notes_x`. At
        // equal rank, listed names have precedence.
        let spelled = || {
            let best = scope.best_spelled_above(name)?;
            (best.rank() < claim.rank()).then_some(&*best.owner)
        };
        self.space_owner(name, claim).or_else(above).or_else(spelled)
    }

    /// Returns the other provider with an id that is the first part of the name, if its id has
    /// precedence over the claim.
    fn space_owner(&self, name: &str, claim: &Claim) -> Option<&Owner> {
        if claim.rank() == Rank::Installed {
            return None;
        }
        let own = naming::spaces(name).any(|space| *space == *claim.owner.space);
        naming::spaces(name).filter(|space| **space != *claim.owner.space).find_map(|space| {
            let owner = self.id_owner(space).filter(|owner| owner.grant != claim.owner.grant)?;
            // The id `mail__a` is below the id `mail`, too. Only a better rank counts in that case.
            let age = if own { claim.age } else { owner.age };
            ((owner.grant.rank, age) < claim.seniority()).then_some(owner)
        })
    }

    /// Returns the provider for an id as written in exposed names.
    pub(in crate::directory) fn id_owner(&self, space: &str) -> Option<&Owner> {
        let owners = self.owners_of(space).iter();
        owners.min_by_key(|owner| (owner.grant.rank, owner.age)).map(|owner| &**owner)
    }

    /// Returns all providers with this id as written in exposed names. They have the same rank.
    pub(in crate::directory) fn owners_of(&self, space: &str) -> &[Arc<Owner>] {
        self.ids.get(space).map_or(&[], Vec::as_slice)
    }

    /// Returns the name under which these scopes list a tool, or `None` if it is not listed.
    pub(in crate::directory) fn listed_as<'o>(
        &self,
        scopes: &[&ScopeIndex],
        owner: &Owner,
        offer: &'o Offer,
    ) -> Option<&'o Arc<str>> {
        let holds = |name: &str| {
            self.held_among(scopes.iter().copied(), name).is_some_and(|held| held.is(owner, offer))
        };
        [&offer.plain, &offer.suffixed].into_iter().find(|name| holds(name))
    }

    /// Returns the names that lead to a tool. This includes names that lead to it while the
    /// providers that it replaces are offline.
    pub(in crate::directory) fn leading_names(
        &self,
        scopes: &[&ScopeIndex],
        owner: &Owner,
        offer: &Offer,
    ) -> Vec<Arc<str>> {
        let leads = |name: &str, kind: Kind| {
            let Some(held) = self.held_among(scopes.iter().copied(), name) else { return false };
            let by = held.by;
            held.is(owner, offer)
                || (by.kind.is_bare() && kind.is_bare() && by.rank() == owner.grant.rank)
                || (by.kind.is_named()
                    && kind.is_named()
                    && by.owner.grant == owner.grant
                    && (name.contains('.')
                        || by.offer.as_ref().is_none_or(|held| held.is_like(offer))))
        };
        let bare = self
            .members
            .get(&owner.id)
            .is_some_and(|member| member.bare_names)
            .then_some(Kind::Bare);
        let mut names: Vec<Arc<str>> = offer
            .names(bare)
            .filter(|(name, kind)| leads(name, *kind))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        let (own, preferred) = (&offer.tool.name, &offer.tool.preferred_name);
        if **preferred != *offer.plain
            && self.written(scopes, preferred).is_some_and(|exposed| leads(exposed, Kind::Named))
        {
            names.push(preferred.as_str().into());
        }
        if own.contains('.') && names.contains(own) {
            let underscored = naming::underscored(own);
            if self.dotted(scopes, &underscored).is_some_and(|dotted| dotted == **own) {
                names.push(underscored.into());
            }
        }
        names
    }
}

/// Yields the name and all its prefixes: `a.b.c`, `a.b`, `a`.
pub(in crate::directory) fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rfind('.').map(|dot| &name[..dot]))
}
