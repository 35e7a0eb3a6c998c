//! The claims to one name, ordered by precedence.
//!
//! Ten thousand nodes may claim the same name and detach together, so every change takes
//! logarithmic time. Nearly every name has one claim, which is stored without a separate
//! allocation.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::principal::Scope;
use crate::provider::{Grant, ProviderId, Rank};
use crate::tool::Tool;

/// The provider behind a claim.
pub(in crate::directory) struct Owner {
    pub(in crate::directory) id: ProviderId,
    pub(in crate::directory) grant: Grant,
    pub(in crate::directory) scope: Scope,
    /// The age of the first claim to its id.
    pub(in crate::directory) age: u64,
    /// Its id as written in exposed names. Names that begin with this and `__` belong to it.
    pub(in crate::directory) space: Arc<str>,
}

/// A described tool, with the two names under which it can be listed.
pub(in crate::directory) struct Offer {
    pub(in crate::directory) tool: Arc<Tool>,
    pub(in crate::directory) plain: Arc<str>,
    /// Derived from the tool's address. It always leads to this tool.
    pub(in crate::directory) suffixed: Arc<str>,
    /// The age of its first claim.
    pub(in crate::directory) age: u64,
}

impl Offer {
    /// Returns whether two offers are the same tool of different providers, which can replace each
    /// other.
    pub(in crate::directory) fn is_like(&self, other: &Self) -> bool {
        self.tool.name == other.tool.name && self.tool.preferred_name == other.tool.preferred_name
    }
}

/// The kind of a claim. At equal rank, an earlier kind has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::directory) enum Kind {
    /// A tool's exposed name with a suffix.
    Suffixed,
    /// A tool's plain exposed name, its dotted own name, or a dotted open prefix.
    Named,
    /// The undotted name of a tool on the host that the operator prefers.
    PreferredBare,
    /// The undotted name of a host's tool. Every host has a `Bash`, so such a name belongs to no
    /// grant.
    Bare,
    /// An undotted open prefix, or the open tool that represents it. Tools of that name have
    /// precedence unless the prefix is older, see `Index::held`.
    Open,
    /// The name of a tool without its provider's id, while it is unambiguous.
    Short,
}

impl Kind {
    pub(in crate::directory) fn is_bare(self) -> bool {
        matches!(self, Self::PreferredBare | Self::Bare)
    }

    /// Returns whether the name belongs to the grant with the first claim.
    pub(in crate::directory) fn is_named(self) -> bool {
        matches!(self, Self::Named | Self::Open)
    }
}

#[derive(Clone)]
pub(in crate::directory) struct Claim {
    pub(in crate::directory) owner: Arc<Owner>,
    /// The described tool; `None` for an open prefix.
    pub(in crate::directory) offer: Option<Arc<Offer>>,
    pub(in crate::directory) kind: Kind,
    pub(in crate::directory) age: u64,
}

impl Claim {
    pub(in crate::directory) fn rank(&self) -> Rank {
        self.owner.grant.rank
    }

    /// Returns the precedence among the grants that claim a name.
    pub(in crate::directory) fn seniority(&self) -> (Rank, u64) {
        (self.rank(), self.age)
    }

    /// Returns whether this claim has precedence over one with another grant.
    pub(in crate::directory) fn precedes(&self, other: &Self) -> bool {
        self.owner.grant != other.owner.grant && self.seniority() < other.seniority()
    }

    pub(in crate::directory) fn is_of(&self, owner: &Owner) -> bool {
        self.owner.id == owner.id
    }

    fn order(&self) -> (Rank, Kind, u64, &ProviderId, Option<&str>) {
        let own = self.offer.as_ref().map(|offer| &*offer.tool.name);
        (self.rank(), self.kind, self.age, &self.owner.id, own)
    }
}

impl Ord for Claim {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Claim {}

pub(in crate::directory) enum Claims {
    One(Claim),
    Many(Box<Many>),
}

/// The same claims in two orders.
#[derive(Default)]
pub(in crate::directory) struct Many {
    ordered: BTreeSet<Claim>,
    by_grant: BTreeSet<ByGrant>,
}

#[derive(PartialEq, Eq)]
struct ByGrant(Claim);

impl Ord for ByGrant {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.owner.grant.cmp(&other.0.owner.grant).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for ByGrant {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Claims {
    pub(super) fn insert(&mut self, claim: Claim) {
        match self {
            Self::Many(many) => many.insert(claim),
            Self::One(one) => {
                let mut many = Many::default();
                many.insert(one.clone());
                many.insert(claim);
                *self = Self::Many(Box::new(many));
            }
        }
    }

    /// Removes a claim. Returns `true` if none is left.
    pub(super) fn remove(&mut self, claim: &Claim) -> bool {
        match self {
            Self::One(one) => one == claim,
            Self::Many(many) => {
                many.ordered.remove(claim);
                many.by_grant.remove(&ByGrant(claim.clone()));
                if many.ordered.len() == 1
                    && let Some(last) = many.ordered.pop_first()
                {
                    *self = Self::One(last);
                }
                false
            }
        }
    }

    /// Returns all claims, the best first.
    pub(in crate::directory) fn iter(&self) -> impl Iterator<Item = &Claim> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(many) => (None, Some(&many.ordered)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the claims of this kind and of the owner's rank, the best first.
    pub(in crate::directory) fn of_kind(
        &self,
        owner: &Arc<Owner>,
        kind: Kind,
    ) -> impl Iterator<Item = &Claim> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(many) => {
                let from = Claim { owner: Arc::clone(owner), offer: None, kind, age: 0 };
                (None, Some(many.ordered.range(from..)))
            }
        };
        let rank = owner.grant.rank;
        let is_same = move |claim: &&Claim| claim.kind == kind && claim.rank() == rank;
        one.into_iter().chain(many.into_iter().flatten()).take_while(is_same)
    }

    /// Returns the claims of a provider's grant, the best first.
    pub(in crate::directory) fn of_grant(
        &self,
        owner: &Arc<Owner>,
    ) -> impl Iterator<Item = &Claim> {
        let (one, many) = match self {
            Self::One(one) => (Some(one).filter(|one| one.owner.grant == owner.grant), None),
            Self::Many(many) => (None, Some(many.of_grant(owner))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl Many {
    fn insert(&mut self, claim: Claim) {
        self.by_grant.insert(ByGrant(claim.clone()));
        self.ordered.insert(claim);
    }

    fn of_grant(&self, owner: &Arc<Owner>) -> impl Iterator<Item = &Claim> {
        // Lower than every claim of this grant, because ages begin with 1.
        let from =
            ByGrant(Claim { owner: Arc::clone(owner), offer: None, kind: Kind::Suffixed, age: 0 });
        let grant = owner.grant.clone();
        self.by_grant
            .range(from..)
            .map(|claim| &claim.0)
            .take_while(move |claim| claim.owner.grant == grant)
    }
}
