//! Names that more than one provider claims, for operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Claim, Index, Kind, Member, Owner, ScopeIndex};
use crate::directory::Renamed;
use crate::provider::ProviderId;

/// Names that two providers with different grants claim, and that one of them holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::directory) struct Contest {
    pub(in crate::directory) holder: ProviderId,
    pub(in crate::directory) loser: ProviderId,
    /// The first of the names.
    pub(in crate::directory) name: Arc<str>,
    /// The number of names.
    pub(in crate::directory) names: usize,
    /// Whether the name is the loser's id.
    pub(in crate::directory) is_id: bool,
}

impl Contest {
    pub(super) fn for_id(holder: &ProviderId, loser: &ProviderId) -> Self {
        let (holder, loser) = (holder.clone(), loser.clone());
        Self { name: Arc::clone(&loser.id), holder, loser, names: 1, is_id: true }
    }
}

/// The claims of a provider that it does not hold.
#[derive(Default)]
pub(super) struct Losses {
    /// Names by which it receives no calls, and the provider that holds each.
    pub(super) blocked: Vec<(String, ProviderId)>,
    /// Tools that are listed under their suffixed names.
    pub(super) renamed: Vec<Renamed>,
}

impl Index {
    /// Returns the contests caused by a provider's claims of this age, one for each other provider.
    pub(super) fn new_contests(&self, id: &ProviderId, age: u64) -> Vec<Contest> {
        let Some(member) = self.members.get(id) else { return Vec::new() };
        let Some(scope) = self.scopes.get(&member.owner.scope) else { return Vec::new() };
        let mut found: BTreeMap<(ProviderId, ProviderId), (Arc<str>, usize)> = BTreeMap::new();
        for (name, claim, _) in member.claims().into_iter().filter(|(_, claim, covers)| {
            // Bare names have the age of their host.
            !covers
                && claim.kind != Kind::Suffixed
                && claim.offer.as_ref().map_or(claim.age, |offer| offer.age) == age
        }) {
            let pair = match self.winner_over(scope, &name, &claim) {
                Some(holder) => Some((holder.id.clone(), id.clone())),
                None => {
                    self.loser_to(scope, &name, &claim).map(|loser| (id.clone(), loser.id.clone()))
                }
            };
            if let Some(pair) = pair {
                found.entry(pair).or_insert((name, 0)).1 += 1;
            }
        }
        let found = found.into_iter();
        found
            .map(|((holder, loser), (name, names))| Contest {
                holder,
                loser,
                name,
                names,
                is_id: false,
            })
            .collect()
    }

    /// Returns the claims that a provider does not hold, as seen from its scope.
    pub(super) fn losses(&self, member: &Member) -> Losses {
        let mut losses = Losses::default();
        let Some(scope) = self.scopes.get(&member.owner.scope) else { return losses };
        for (name, claim, covers) in member.claims() {
            let Some(offer) = &claim.offer else {
                let holder = Some(())
                    .filter(|()| covers)
                    .and_then(|()| self.winner_over(scope, &name, &claim));
                losses.blocked.extend(holder.map(|holder| (name.to_string(), holder.id.clone())));
                continue;
            };
            let listed = self.listed_as(&[scope], &member.owner, offer);
            let is_plain = name == offer.plain;
            match listed {
                Some(listed) if is_plain && *listed != name => {
                    let Some(holder) = self.held(scope, &name).map(|held| &held.by.owner) else {
                        continue;
                    };
                    losses.renamed.push(Renamed {
                        name: Arc::clone(listed),
                        wanted: name,
                        held_by: holder.id.clone(),
                        holder_away: self
                            .members
                            .get(&holder.id)
                            .is_some_and(|holder| !holder.is_online()),
                    });
                }
                // Report one name for each tool: a tool that is not listed at all, or a listed tool
                // that lost another name.
                None if is_plain => {
                    let own = if offer.tool.name.contains('.') { &offer.tool.name } else { &name };
                    let holder = self
                        .blocked_by(scope, &name, &claim)
                        .or_else(|| self.winner_over(scope, own, &claim));
                    losses
                        .blocked
                        .extend(holder.map(|holder| (own.to_string(), holder.id.clone())));
                }
                Some(listed) if *listed == offer.plain && claim.kind != Kind::Suffixed => {
                    let holder = self.winner_over(scope, &name, &claim);
                    losses
                        .blocked
                        .extend(holder.map(|holder| (name.to_string(), holder.id.clone())));
                }
                _ => {}
            }
        }
        losses.blocked.sort_unstable();
        losses.blocked.dedup();
        losses
    }

    /// Returns the provider with another grant that holds the name instead of this claim's
    /// provider.
    fn winner_over<'i>(
        &'i self,
        scope: &'i ScopeIndex,
        name: &str,
        claim: &Claim,
    ) -> Option<&'i Owner> {
        let Some(held) = self.held(scope, name) else { return self.blocked_by(scope, name, claim) };
        let by = held.by;
        (by.owner.grant != claim.owner.grant && !is_shared(by, claim)).then_some(&*by.owner)
    }

    /// Returns a provider with another grant that claims a name which this claim's grant holds.
    fn loser_to<'i>(&self, scope: &'i ScopeIndex, name: &str, claim: &Claim) -> Option<&'i Owner> {
        // The holder of a shared name has precedence over the others.
        let holder = &self.held(scope, name)?.by.owner;
        let others = scope.names.get(name).filter(|_| holder.grant == claim.owner.grant)?.iter();
        let mut others = others
            .filter(|other| other.kind != Kind::Suffixed && other.owner.grant != claim.owner.grant);
        others.find(|other| !is_shared(other, claim)).map(|other| &*other.owner)
    }
}

/// Returns whether hosts with different grants share a name. Only hosts of one rank replace each
/// other.
fn is_shared(one: &Claim, other: &Claim) -> bool {
    one.kind.is_bare() && other.kind.is_bare() && one.rank() == other.rank()
}
