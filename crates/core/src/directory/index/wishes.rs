//! Who gets a plain name when more than one tool wishes for it.
//!
//! Whoever comes first has it, and the others go by a longer one. It moves on as the claim to the provider's own name
//! does, so that the two names of a tool never lead to different providers:
//!
//! - **At once** from a tool that gets no calls, because somebody who goes before it offers the same one: a name under
//!   which nothing can be called is of use to nobody.
//! - **To a newcomer** from one that is away, if both offer the same tool under the same grant: they stand in for
//!   each other. Who was here already keeps the name that it has, and is called by the other one while that is away.
//! - **When its holder is forgotten**, to the first of those that want it. With another grant there is no other way: a
//!   provider that merely reconnects must find its name where it was.
//!
//! Nobody who remembers the longer name is led astray: it goes on leading to the tool that had it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::claims::Claims;
use super::names::Withdrawn;
use super::{Index, Leaving, Listed, Presence};
use crate::directory::resolve;
use crate::principal::Scope;
use crate::provider::{GrantId, ProviderId};

/// A tool that goes by a longer name than it wished for: where it is, what it goes by, and its provider's name for it.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::directory) struct Wish {
    pub(in crate::directory) scope: Scope,
    pub(in crate::directory) name: Arc<str>,
    pub(super) own: Arc<str>,
}

/// The tools that want one name. Ten thousand nodes may want the same one and leave together, so that nobody's leaving is a
/// reason to ask them all.
#[derive(Default)]
pub(super) struct Wishes {
    /// In the order in which they get it.
    all: BTreeMap<Turn, Wish>,
    /// The same ones by what decides whether they may have it, but for their turn.
    alike: BTreeSet<(Arc<str>, Scope, GrantId, Turn)>,
}

/// When it is a tool's turn: who is here before who is away, who has a grant before who has none, and then the oldest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    away: bool,
    ungranted: bool,
    age: u64,
    /// Tells the tools of one member apart.
    name: Arc<str>,
}

impl Wishes {
    /// The first of those with this grant that is here, and the first that is away.
    fn first_alike(&self, own: &Arc<str>, scope: &Scope, grant: &GrantId) -> [Option<&Wish>; 2] {
        [false, true].map(|away| {
            let begin = Turn { away, ungranted: false, age: 0, name: "".into() };
            let begin = (Arc::clone(own), scope.clone(), grant.clone(), begin);
            let (found, where_it_is, by, turn) = self.alike.range((Bound::Included(begin), Bound::Unbounded)).next()?;
            let same = found == own && where_it_is == scope && by == grant && turn.away == away;
            if same { self.all.get(turn) } else { None }
        })
    }
}

impl Index {
    /// Looks after the names of a member that left, or that has entered what it offers anew.
    pub(super) fn release(&mut self, withdrawn: &Withdrawn, id: &ProviderId) {
        if self.wanted.is_empty() {
            return;
        }
        let let_go: Vec<&String> = {
            let held = self.members.get(id).into_iter().flat_map(|member| member.claims.iter().chain(&member.bare));
            let held: HashSet<&String> = held.collect();
            withdrawn.claims.iter().filter(|claim| !held.contains(claim)).collect()
        };
        let index = withdrawn.scope.as_ref().and_then(|scope| self.scopes.get(scope));
        let keeps =
            |name: &Arc<str>| index.is_some_and(|index| index.exposed.get(name).is_some_and(|l| l.member == *id));
        let freed: Vec<&Arc<str>> = withdrawn.exposed().filter(|name| !keeps(name)).collect();
        for name in freed {
            self.settle(name);
        }
        // What it kept from others by claiming it, it keeps from them no more.
        for (claim, scope) in let_go.into_iter().filter_map(|claim| Some((claim, withdrawn.scope.as_ref()?))) {
            for (own, plain) in self.wanting_below(scope, claim) {
                self.settle_alike(&plain, scope, &own);
            }
            if let Some((plain, _)) = self.wanted.get_key_value(claim.as_str()) {
                self.settle(&Arc::clone(plain));
            }
        }
    }

    pub(super) fn settle_all(&mut self) {
        let wanted: Vec<Arc<str>> = self.wanted.keys().cloned().collect();
        for name in &wanted {
            self.settle(name);
        }
    }

    /// A tool that was not here before wants a name. What it claims gives a name to nobody else, so that nobody else is asked:
    /// ten thousand nodes may come with the same tool.
    pub(super) fn arrive(&mut self, plain: &Arc<str>, wish: &Wish) {
        if self.may_have(plain, wish, true) {
            self.hand_over(plain, wish);
        }
    }

    /// Gives a name to the first of those that want it and may have it.
    fn settle(&mut self, plain: &Arc<str>) {
        let first = |index: &Self| {
            let mut wishes = index.wishes(plain);
            wishes.find(|wish| index.may_have(plain, wish, false)).cloned()
        };
        while let Some(wish) = first(self) {
            self.hand_over(plain, &wish);
            // In different sessions, and for different users, it can be given to more than one; else it is taken now.
            if matches!(wish.scope, Scope::Everyone | Scope::Channel(_)) {
                break;
            }
        }
    }

    /// The same for those alone that are in one scope and have one name of their own, because who claims that has changed.
    fn settle_alike(&mut self, plain: &Arc<str>, scope: &Scope, own: &Arc<str>) {
        let first = |index: &Self| {
            // Who stands foremost among all that claim it keeps it from everybody with another grant.
            let here = index.scopes.get(scope)?;
            let foremost = resolve::foremost(index, here, own, None).min_by_key(|member| member.rank())?;
            let first = index.wanted.get(plain)?.first_alike(own, scope, &foremost.grant);
            first.into_iter().flatten().find(|wish| index.may_have(plain, wish, false)).cloned()
        };
        while let Some(wish) = first(self) {
            self.hand_over(plain, &wish);
        }
    }

    /// The tools of a scope that may be kept from a name by a claim to this one: their own names, and what they want.
    fn wanting_below(&self, scope: &Scope, claim: &str) -> Vec<(Arc<str>, Arc<str>)> {
        let Some(index) = self.scopes.get(scope) else { return Vec::new() };
        let below = format!("{claim}.");
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let below = index.wanting.range::<str, _>(from).take_while(|(own, _)| own.starts_with(&below));
        // A plain name (`Bash`) is nobody's to keep.
        let itself = index.wanting.get_key_value(claim).filter(|(own, _)| own.contains('.'));
        let all = itself.into_iter().chain(below);
        all.flat_map(|(own, plain)| plain.iter().map(|plain| (Arc::clone(own), Arc::clone(plain)))).collect()
    }

    /// Whether a name is to be had: nobody has it, or who has it yields.
    fn may_have(&self, plain: &Arc<str>, wish: &Wish, newcomer: bool) -> bool {
        #[cfg(test)]
        self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some((index, listed)) = self.scopes.get(&wish.scope).zip(self.listed(wish)) else { return false };
        let yields = index.exposed.get(plain).is_none_or(|holder| self.yields(holder, listed, newcomer));
        let is_used = || self.is_reserved(&wish.scope, plain, &listed.member) || index.former.contains_key(plain);
        // Asked last: it looks at everybody who claims the same.
        yields && !is_used() && resolve::blocker_of(self, index, listed).is_none()
    }

    fn yields(&self, holder: &Listed, other: &Listed, newcomer: bool) -> bool {
        let members = self.members.get(&holder.member).zip(self.members.get(&other.member));
        let Some((has, wants)) = members.filter(|(has, wants)| has.id != wants.id) else { return false };
        let same_tool = holder.tool.name == other.tool.name && holder.tool.wish == other.tool.wish;
        let away = matches!(has.presence, Presence::Offline { why: Leaving::Lost | Leaving::Stopped, .. });
        let moves = if has.grant == wants.grant { newcomer && away } else { wants.goes_before(has) };
        same_tool && other.tool.name.contains('.') && moves
    }

    /// Gives a name to who may have it, and a longer one to who had it.
    fn hand_over(&mut self, plain: &Arc<str>, wish: &Wish) {
        let Wish { scope, name, .. } = wish;
        if let Some(holder) = self.scopes.get_mut(scope).and_then(|index| index.exposed.get_mut(plain)) {
            let (id, former) = (holder.member.clone(), holder.former.take());
            let own = Arc::clone(&holder.tool.name);
            let address = holder.tool.address(&id);
            holder.wants = Some(Arc::clone(plain));
            if let Some(former) = &former {
                self.forget_former(scope, former);
            }
            let longer = former.unwrap_or_else(|| self.longer_name(scope, &id, plain, &address));
            self.rename(scope, plain, &longer);
            self.wish(plain, &id, Wish { scope: scope.clone(), name: longer, own });
        }
        let Some(id) = self.listed(wish).map(|listed| listed.member.clone()) else { return };
        self.unwish(plain, &id, wish);
        self.rename(scope, name, plain);
        let Some(index) = self.scopes.get_mut(scope) else { return };
        if let Some(listed) = index.exposed.get_mut(plain) {
            listed.wants = None;
            listed.former = Some(Arc::clone(name));
            index.former.insert(Arc::clone(name), Arc::clone(plain));
            *self.exposed.entry(Arc::clone(name)).or_default().of(scope) += 1;
        }
    }

    fn forget_former(&mut self, scope: &Scope, former: &str) {
        if let Some(index) = self.scopes.get_mut(scope) {
            index.former.remove(former);
        }
        self.uncount(scope, former);
    }

    fn rename(&mut self, scope: &Scope, from: &Arc<str>, to: &Arc<str>) {
        let Some(index) = self.scopes.get_mut(scope) else { return };
        let Some(listed) = index.exposed.remove(from) else { return };
        let (id, tool) = (listed.member.clone(), Arc::clone(&listed.tool));
        index.exposed.insert(Arc::clone(to), listed);
        let Some(member) = self.members.get_mut(&id) else { return };
        let claims = index.claims.get_mut(&*tool.name).into_iter().chain(index.bare.get_mut(&*tool.name));
        let claims = claims.filter_map(|claims| claims.tool_mut(member.age));
        let short = tool.short.as_ref().and_then(|short| index.short.get_mut(short)).into_iter().flatten();
        for claim in claims.chain(short.filter(|claim| claim.member == id)) {
            if let Some((name, _)) = claim.tool.as_mut().filter(|(name, _)| name == from) {
                *name = Arc::clone(to);
            }
        }
        member.exposed.iter_mut().filter(|name| *name == from).for_each(|name| *name = Arc::clone(to));
        self.uncount(scope, from);
        *self.exposed.entry(Arc::clone(to)).or_default().of(scope) += 1;
    }

    /// Enters a wish of a member's tool.
    pub(super) fn wish(&mut self, plain: &Arc<str>, id: &ProviderId, wish: Wish) {
        let Some((turn, grant)) = self.turn(id, &wish.name) else { return };
        let index = self.scopes.entry(wish.scope.clone()).or_default();
        index.wanting.entry(Arc::clone(&wish.own)).or_default().insert(Arc::clone(plain));
        let wishes = self.wanted.entry(Arc::clone(plain)).or_default();
        wishes.alike.insert((Arc::clone(&wish.own), wish.scope.clone(), grant, turn.clone()));
        wishes.all.insert(turn, wish);
    }

    /// Takes one out. Its member is as it was when the wish was entered.
    pub(super) fn unwish(&mut self, plain: &Arc<str>, id: &ProviderId, wish: &Wish) {
        let Some((turn, grant)) = self.turn(id, &wish.name) else { return };
        let Some(wishes) = self.wanted.get_mut(plain) else { return };
        wishes.all.remove(&turn);
        let key = (Arc::clone(&wish.own), wish.scope.clone(), grant, turn);
        wishes.alike.remove(&key);
        let (own, scope, ..) = key;
        let begin = (own, scope, GrantId::none(), Turn { away: false, ungranted: false, age: 0, name: "".into() });
        let next = wishes.alike.range(&begin..).next();
        let more = next.is_some_and(|(own, scope, ..)| *own == begin.0 && *scope == begin.1);
        if wishes.all.is_empty() {
            self.wanted.remove(plain);
        }
        let Some(index) = self.scopes.get_mut(&wish.scope).filter(|_| !more) else { return };
        if let Some(plains) = index.wanting.get_mut(&wish.own) {
            plains.remove(plain);
            if plains.is_empty() {
                index.wanting.remove(&wish.own);
            }
        }
    }

    /// Takes a member's wishes out, to be put back once it has changed.
    pub(super) fn take_wishes(&mut self, id: &ProviderId) -> Vec<(Arc<str>, Wish)> {
        let Some(member) = self.members.get(id) else { return Vec::new() };
        let Some(index) = self.scopes.get(&member.scope) else { return Vec::new() };
        let wishes = member.exposed.iter().filter_map(|name| {
            let listed = index.exposed.get(name)?;
            let (scope, own) = (member.scope.clone(), Arc::clone(&listed.tool.name));
            Some((listed.wants.clone()?, Wish { scope, name: Arc::clone(name), own }))
        });
        let wishes: Vec<_> = wishes.collect();
        for (plain, wish) in &wishes {
            self.unwish(plain, id, wish);
        }
        wishes
    }

    pub(super) fn put_wishes(&mut self, id: &ProviderId, wishes: Vec<(Arc<str>, Wish)>) {
        for (plain, wish) in wishes {
            self.wish(&plain, id, wish);
        }
    }

    fn turn(&self, id: &ProviderId, name: &Arc<str>) -> Option<(Turn, GrantId)> {
        let member = self.members.get(id)?;
        let (ungranted, age) = member.rank();
        Some((Turn { away: !member.is_online(), ungranted, age, name: Arc::clone(name) }, member.grant.clone()))
    }

    pub(in crate::directory) fn listed(&self, wish: &Wish) -> Option<&Listed> {
        self.scopes.get(&wish.scope)?.exposed.get(&wish.name)
    }

    /// Those that would go by this name, if they could, in the order in which they get it.
    pub(in crate::directory) fn wishes(&self, plain: &str) -> impl Iterator<Item = &Wish> {
        self.wanted.get(plain).into_iter().flat_map(|wishes| wishes.all.values())
    }

    /// Who goes by a name that a tool in this scope wants.
    pub(super) fn holder(&self, scope: &Scope, plain: &str) -> Option<&ProviderId> {
        let here = self.scopes.get(scope);
        let by_name = here.into_iter().chain(self.scopes.values()).find_map(|index| {
            let name = index.former.get(plain).map_or(plain, |name| &**name);
            Some(&index.exposed.get(name)?.member)
        });
        let by_claim = || {
            let claims = here.into_iter().flat_map(|index| [index.claims.get(plain), index.bare.get(plain)]);
            claims.flatten().flat_map(Claims::iter).map(|claim| &claim.member).next()
        };
        by_name.or_else(by_claim)
    }
}

#[cfg(test)]
impl Index {
    /// Every table says the same of every name, and no tool goes by a longer one while it may have the plain one.
    pub(in crate::directory) fn assert_consistent(&self) {
        use std::collections::HashMap;

        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut wishes = 0;
        for (scope, index) in &self.scopes {
            for (name, listed) in &index.exposed {
                *counts.entry(name).or_default() += 1;
                assert!(self.members[&listed.member].exposed.contains(name), "{name} is its member's");
                let claims = index.claims.get(&*listed.tool.name).into_iter().flat_map(Claims::iter);
                let mut claims = claims.filter(|claim| claim.member == listed.member).filter_map(|c| c.tool.as_ref());
                assert!(claims.all(|(claimed, _)| claimed == name), "{name} is what is claimed");
                if let Some(former) = &listed.former {
                    *counts.entry(former).or_default() += 1;
                    assert_eq!(index.former.get(former), Some(name));
                }
                if let Some(plain) = &listed.wants {
                    let own = Arc::clone(&listed.tool.name);
                    let wish = Wish { scope: scope.clone(), name: Arc::clone(name), own };
                    let (turn, grant) = self.turn(&listed.member, name).unwrap();
                    let wished = &self.wanted[plain];
                    assert!(wished.all.get(&turn) == Some(&wish), "{plain} is wanted");
                    assert!(wished.alike.contains(&(Arc::clone(&wish.own), scope.clone(), grant, turn)));
                    assert!(index.wanting[&wish.own].contains(plain), "{plain} is wanted here");
                    assert!(!self.may_have(plain, &wish, false), "{name} could be {plain}");
                    wishes += 1;
                }
            }
            let wanting: HashSet<_> =
                index.wanting.iter().flat_map(|(own, all)| all.iter().map(move |p| (own, p))).collect();
            let wanted: HashSet<_> =
                index.exposed.values().filter_map(|l| Some((&l.tool.name, l.wants.as_ref()?))).collect();
            assert_eq!(wanting, wanted);
            let former = index.exposed.values().filter(|listed| listed.former.is_some()).count();
            assert_eq!(index.former.len(), former);
        }
        assert_eq!(self.wanted.values().map(|wanted| wanted.all.len()).sum::<usize>(), wishes);
        assert!(self.wanted.values().all(|wanted| wanted.all.len() == wanted.alike.len()));
        let counted: HashMap<&str, usize> =
            self.exposed.iter().map(|(name, counts)| (&**name, counts.total())).collect();
        assert_eq!(counted, counts);
    }
}
