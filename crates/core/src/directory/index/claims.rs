//! Who claims a name.
//!
//! Ten thousand nodes may claim the same one and leave together, so that nothing here goes through all of them for one of
//! them. Nearly every name has one claimant, which takes no more room than it must.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Claim;
use crate::provider::GrantId;

/// Where somebody stands among those who claim the same: with a grant before without one, the oldest first.
pub(super) type Rank = (bool, u64);

/// The claims to one name, those of the oldest member first, and of one member's a tool before a prefix.
pub(in crate::directory) enum Claims {
    Few(Vec<Held>),
    Many(Box<Crowd>),
}

/// A claim, with what its member had when it was made. No two members have the same age.
pub(in crate::directory) struct Held {
    claim: Claim,
    age: u64,
    grant: GrantId,
}

/// How many are looked at one by one.
const FEW: usize = 8;

#[derive(Default)]
pub(in crate::directory) struct Crowd {
    held: BTreeMap<(u64, bool), Held>,
    tools: Grants,
    prefixes: Grants,
}

/// The grants behind claims.
#[derive(Default)]
struct Grants {
    ages: HashMap<GrantId, BTreeSet<u64>>,
    /// Each grant once, where its foremost claimant stands.
    foremost: BTreeMap<Rank, GrantId>,
}

impl Default for Claims {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Claims {
    pub(super) fn insert(&mut self, claim: Claim, age: u64, grant: &GrantId) {
        let held = Held { claim, age, grant: grant.clone() };
        match self {
            Self::Many(crowd) => crowd.insert(held),
            Self::Few(few) => {
                let at = few.partition_point(|other| other.key() < held.key());
                few.insert(at, held);
                if few.len() > FEW {
                    let mut crowd = Box::<Crowd>::default();
                    few.drain(..).for_each(|held| crowd.insert(held));
                    *self = Self::Many(crowd);
                }
            }
        }
    }

    /// Takes out what a member claims.
    pub(super) fn remove(&mut self, age: u64) {
        match self {
            Self::Few(few) => few.retain(|held| held.age != age),
            Self::Many(crowd) => crowd.remove(age),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(in crate::directory) fn iter(&self) -> impl Iterator<Item = &Claim> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(crowd) => (None, Some(&crowd.held)),
        };
        let many = many.into_iter().flat_map(BTreeMap::values);
        few.into_iter().flatten().chain(many).map(|held| &held.claim)
    }

    /// What a member claims: a tool of this name, and what lies below it.
    pub(super) fn of(&self, age: u64) -> [Option<&Claim>; 2] {
        [false, true].map(|covers| match self {
            Self::Few(few) => few.iter().find(|held| held.key() == (age, covers)).map(|held| &held.claim),
            Self::Many(crowd) => crowd.held.get(&(age, covers)).map(|held| &held.claim),
        })
    }

    /// A member's own tool of this name.
    pub(super) fn tool_mut(&mut self, age: u64) -> Option<&mut Claim> {
        let held = match self {
            Self::Few(few) => few.iter_mut().find(|held| held.key() == (age, false)),
            Self::Many(crowd) => crowd.held.get_mut(&(age, false)),
        };
        held.map(|held| &mut held.claim)
    }

    /// The foremost of those who claim the name itself, or else what lies below it; leaving out those with this grant.
    pub(in crate::directory) fn foremost(&self, below: bool, but: Option<&GrantId>) -> Option<&Claim> {
        let held = match self {
            Self::Few(few) => {
                let others = few.iter().filter(|held| (held.covers() || !below) && Some(&held.grant) != but);
                others.min_by_key(|held| held.rank())
            }
            Self::Many(crowd) => crowd.foremost(below, but),
        };
        held.map(|held| &held.claim)
    }
}

impl Held {
    /// A described tool is one name; only a prefix covers what lies below it.
    fn covers(&self) -> bool {
        self.claim.tool.is_none()
    }

    fn key(&self) -> (u64, bool) {
        (self.age, self.covers())
    }

    fn rank(&self) -> Rank {
        (self.grant.is_none(), self.age)
    }
}

impl Crowd {
    fn insert(&mut self, held: Held) {
        self.grants(held.covers()).insert(&held.grant, held.age);
        self.held.insert(held.key(), held);
    }

    fn remove(&mut self, age: u64) {
        for covers in [false, true] {
            if let Some(held) = self.held.remove(&(age, covers)) {
                self.grants(covers).remove(&held.grant, age);
            }
        }
    }

    fn grants(&mut self, covers: bool) -> &mut Grants {
        if covers { &mut self.prefixes } else { &mut self.tools }
    }

    fn foremost(&self, below: bool, but: Option<&GrantId>) -> Option<&Held> {
        let tool = if below { None } else { self.tools.foremost_but(but) };
        let tool = tool.map(|rank| (rank, false));
        let prefix = self.prefixes.foremost_but(but).map(|rank| (rank, true));
        let ((_, age), covers) = tool.into_iter().chain(prefix).min()?;
        self.held.get(&(age, covers))
    }
}

impl Grants {
    fn insert(&mut self, grant: &GrantId, age: u64) {
        let ages = self.ages.entry(grant.clone()).or_default();
        let before = ages.first().copied();
        ages.insert(age);
        let now = ages.first().copied();
        self.moved(grant, before, now);
    }

    fn remove(&mut self, grant: &GrantId, age: u64) {
        let Some(ages) = self.ages.get_mut(grant) else { return };
        let before = ages.first().copied();
        ages.remove(&age);
        let now = ages.first().copied();
        if now.is_none() {
            self.ages.remove(grant);
        }
        self.moved(grant, before, now);
    }

    fn moved(&mut self, grant: &GrantId, before: Option<u64>, now: Option<u64>) {
        if before != now {
            before.map(|age| self.foremost.remove(&(grant.is_none(), age)));
            now.map(|age| self.foremost.insert((grant.is_none(), age), grant.clone()));
        }
    }

    /// Looks at two at most: only one has this grant.
    fn foremost_but(&self, but: Option<&GrantId>) -> Option<Rank> {
        self.foremost.iter().find(|(_, grant)| Some(*grant) != but).map(|(rank, _)| *rank)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::provider::ProviderId;
    use crate::tool::Tool;

    fn claim(age: u64, covers: bool) -> Claim {
        let tool = (!covers).then(|| ("t".into(), Arc::new(Tool::named("t"))));
        Claim { member: ProviderId::new("node", &age.to_string()), tool }
    }

    fn told(claim: &Claim) -> (String, bool) {
        (claim.member.id.to_string(), claim.tool.is_none())
    }

    proptest! {
        /// However many there are, it is as if all were looked at.
        #[test]
        fn the_foremost_is_found_as_if_all_were_looked_at(
            steps in prop::collection::vec((0..40_u64, any::<bool>(), any::<bool>()), 0..120),
            below in any::<bool>(),
            but in prop::option::of(0..4_u64),
        ) {
            // By its age a member has a grant, and every fourth one has none.
            let grant = |number: u64| GrantId(if number == 0 { "".into() } else { number.to_string().into() });
            let (mut claims, mut known) = (Claims::default(), BTreeSet::new());
            for (age, covers, comes) in steps {
                if !comes {
                    claims.remove(age);
                    known.retain(|(other, _)| *other != age);
                } else if known.insert((age, covers)) {
                    claims.insert(claim(age, covers), age, &grant(age % 4));
                }
            }
            let told_all: Vec<_> = claims.iter().map(told).collect();
            let all: Vec<_> = known.iter().map(|(age, covers)| (age.to_string(), *covers)).collect();
            prop_assert_eq!(told_all, all);
            prop_assert_eq!(claims.is_empty(), known.is_empty());
            let others = known.iter().filter(|(age, covers)| (*covers || !below) && Some(age % 4) != but);
            let foremost = others.min_by_key(|(age, covers)| (age % 4 == 0, *age, *covers));
            let found = claims.foremost(below, but.map(grant).as_ref()).map(told);
            prop_assert_eq!(found, foremost.map(|(age, covers)| (age.to_string(), *covers)));
            for (age, covers) in &known {
                prop_assert!(claims.of(*age)[usize::from(*covers)].is_some());
            }
        }
    }
}
