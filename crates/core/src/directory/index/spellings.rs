//! Other spellings of names: ids as their providers write them, and underscores for dots.

use std::sync::Arc;

use super::{Claim, Index, ScopeIndex, prefixes};
use crate::naming;

impl Index {
    /// Returns the exposed name of the tool with this preferred name, if the preferred name begins
    /// with the provider's id: `my_laptop__Bash` for `my.laptop__Bash`. A claim of a better rank to
    /// the name itself has precedence.
    pub(in crate::directory) fn written<'i>(
        &'i self,
        scopes: &[&ScopeIndex],
        name: &str,
    ) -> Option<&'i Arc<str>> {
        let held = self.held_among(scopes.iter().copied(), name).map(|held| held.by.rank());
        naming::spaces(name).find_map(|id| {
            let owners = self.owners_of(&naming::exposed_id(id)).iter();
            let owners = owners.filter(|owner| {
                *owner.id.id == *id && held.is_none_or(|held| held >= owner.grant.rank)
            });
            let listed = owners.filter_map(|owner| {
                let offers = self.members.get(&owner.id)?.offers.iter();
                let offer = offers.filter(|offer| offer.tool.preferred_name == name).min_by(
                    |one, other| (one.age, &one.tool.name).cmp(&(other.age, &other.tool.name)),
                )?;
                Some((owner, self.listed_as(scopes, owner, offer)?))
            });
            let best = listed.min_by_key(|(owner, _)| (owner.grant.rank, owner.age));
            best.map(|(_, exposed)| exposed)
        })
    }

    /// Returns the dotted name for a name with underscores that no provider holds. Of the open
    /// prefixes that the name begins with, the best rank counts, then the length. The first
    /// underscore after the prefix becomes a dot. The others are part of the last word, because
    /// nodes derive their prefixes from their tools' names without the last word.
    pub(in crate::directory) fn dotted(
        &self,
        scopes: &[&ScopeIndex],
        name: &str,
    ) -> Option<String> {
        if !naming::may_be_dotted(name) || self.held_among(scopes.iter().copied(), name).is_some() {
            return None;
        }
        let found = name.rmatch_indices('_').filter_map(|(at, _)| {
            let (spelled, rest) = (&name[..at], &name[at + 1..]);
            let held = scopes.iter().filter_map(|scope| scope.prefix_spelled(spelled));
            let (prefix, claim) = held.min_by_key(|(_, claim)| claim.rank())?;
            (!rest.is_empty()).then_some((claim.rank(), prefix, rest))
        });
        let (_, prefix, rest) = found.min_by_key(|(rank, ..)| *rank)?;
        Some(format!("{prefix}.{rest}"))
    }
}

impl ScopeIndex {
    /// Returns the best claim to an open prefix at or above the name.
    pub(super) fn best_above(&self, name: &str) -> Option<&Claim> {
        let firsts = prefixes(name).filter_map(|prefix| self.prefixes.get(prefix)?.iter().next());
        firsts.min_by_key(|claim| claim.seniority())
    }

    /// Returns the open prefix with this spelling, and its claim. Prefixes that belong to a grant
    /// without a claim to them do not count.
    fn prefix_spelled(&self, spelled: &str) -> Option<(&Arc<str>, &Claim)> {
        let prefixes = self.spelled.get(spelled)?.iter();
        let held = prefixes.filter_map(|prefix| {
            let best = self.best_above(prefix)?;
            Some((prefix, self.prefixes.get(prefix)?.of_grant(&best.owner).next()?))
        });
        held.min_by_key(|(_, claim)| claim.seniority())
    }

    /// Returns the best claim to an open prefix above the name in its spelling with underscores.
    pub(super) fn best_spelled_above(&self, name: &str) -> Option<&Claim> {
        if self.spelled.is_empty() || !naming::may_be_dotted(name) {
            return None;
        }
        let ends = name.match_indices('_');
        let prefixes = ends.filter_map(|(at, _)| self.spelled.get(&name[..at])).flatten();
        let firsts = prefixes.filter_map(|prefix| self.prefixes.get(prefix)?.iter().next());
        firsts.min_by_key(|claim| claim.seniority())
    }

    pub(super) fn insert_spelling(&mut self, prefix: &Arc<str>) {
        let all = self.spelled.entry(spelling(prefix)).or_insert_with(|| Vec::with_capacity(1));
        // Sorted, so that the order of arrival has no effect.
        if let Err(at) = all.binary_search(prefix) {
            all.insert(at, Arc::clone(prefix));
        }
    }

    pub(super) fn remove_spelling(&mut self, prefix: &Arc<str>) {
        let spelling = spelling(prefix);
        if let Some(all) = self.spelled.get_mut(&spelling) {
            all.retain(|other| other != prefix);
            if all.is_empty() {
                self.spelled.remove(&spelling);
            }
        }
    }
}

/// Returns the spelling of a prefix in exposed names.
fn spelling(prefix: &Arc<str>) -> Arc<str> {
    if prefix.contains('.') { naming::underscored(prefix).into() } else { Arc::clone(prefix) }
}
