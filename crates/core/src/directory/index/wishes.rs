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

use std::collections::HashSet;
use std::sync::Arc;

use super::names::{Withdrawn, address};
use super::{Claim, Index, Listed, Presence};
use crate::directory::resolve;
use crate::principal::Scope;
use crate::provider::ProviderId;

/// A tool that goes by a longer name than it wished for: where it is, and what it goes by.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::directory) struct Wish {
    pub(in crate::directory) scope: Scope,
    pub(in crate::directory) name: Arc<str>,
}

impl Index {
    /// Looks after the names of a member that left, or that has entered what it offers anew.
    pub(super) fn release(&mut self, withdrawn: &Withdrawn, id: &ProviderId) {
        if self.wanted.is_empty() {
            return;
        }
        let let_go = {
            let held = self.members.get(id).into_iter().flat_map(|member| member.claims.iter().chain(&member.bare));
            let held: HashSet<&String> = held.collect();
            withdrawn.claims.iter().any(|claim| !held.contains(claim))
        };
        if let_go {
            // What it kept from others it keeps from them no more, whatever their names are.
            self.settle_all();
        } else {
            withdrawn.exposed().for_each(|name| self.settle(name));
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

    /// Gives a name to the first of those that want it, if it is to be had. In different sessions it can be given to more
    /// than one.
    fn settle(&mut self, plain: &Arc<str>) {
        while let Some(wish) = self.first(plain) {
            self.hand_over(plain, &wish);
        }
    }

    /// Who may have a name and comes before all others who may.
    fn first(&self, plain: &Arc<str>) -> Option<Wish> {
        let order = |wish: &&Wish| {
            let member = self.members.get(&self.listed(wish)?.member)?;
            Some((!member.is_online(), member.grant.is_none(), member.age))
        };
        let wishes = self.wanted.get(plain)?.iter();
        wishes.filter(|wish| self.may_have(plain, wish, false)).min_by_key(order).cloned()
    }

    /// Whether a name is to be had: nobody has it, or who has it yields.
    fn may_have(&self, plain: &Arc<str>, wish: &Wish, newcomer: bool) -> bool {
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
        let away = matches!(has.presence, Presence::Offline { kept: false, .. });
        let moves = if has.grant == wants.grant { newcomer && away } else { wants.goes_before(has) };
        same_tool && other.tool.name.contains('.') && moves
    }

    /// Gives a name to who may have it, and a longer one to who had it.
    fn hand_over(&mut self, plain: &Arc<str>, wish: &Wish) {
        let Wish { scope, name } = wish;
        if let Some(holder) = self.scopes.get_mut(scope).and_then(|index| index.exposed.get_mut(plain)) {
            let (id, former) = (holder.member.clone(), holder.former.take());
            let address = address(&id, &holder.tool);
            holder.wants = Some(Arc::clone(plain));
            if let Some(former) = &former {
                self.forget_former(scope, former);
            }
            let longer = former.unwrap_or_else(|| self.longer_name(scope, &id, plain, &address));
            self.rename(scope, plain, &longer);
            let wish = Wish { scope: scope.clone(), name: longer };
            self.wanted.entry(Arc::clone(plain)).or_default().push(wish);
        }
        self.unwish(plain, scope, name);
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
        let claims = index.claims.get_mut(&*tool.name).into_iter().chain(index.bare.get_mut(&*tool.name));
        let claims = claims.chain(tool.short.as_ref().and_then(|short| index.short.get_mut(short)));
        for Claim { tool: claimed, .. } in claims.flatten().filter(|claim| claim.member == id) {
            if let Some((name, _)) = claimed.as_mut().filter(|(name, _)| name == from) {
                *name = Arc::clone(to);
            }
        }
        let exposed = self.members.get_mut(&id).into_iter().flat_map(|member| &mut member.exposed);
        exposed.filter(|name| *name == from).for_each(|name| *name = Arc::clone(to));
        self.uncount(scope, from);
        *self.exposed.entry(Arc::clone(to)).or_default().of(scope) += 1;
    }

    pub(super) fn unwish(&mut self, plain: &str, scope: &Scope, name: &Arc<str>) {
        if let Some(wishes) = self.wanted.get_mut(plain) {
            wishes.retain(|wish| wish.name != *name || wish.scope != *scope);
            if wishes.is_empty() {
                self.wanted.remove(plain);
            }
        }
    }

    pub(in crate::directory) fn listed(&self, wish: &Wish) -> Option<&Listed> {
        self.scopes.get(&wish.scope)?.exposed.get(&wish.name)
    }

    /// Those that would go by this name, if they could.
    pub(in crate::directory) fn wishes(&self, plain: &str) -> &[Wish] {
        self.wanted.get(plain).map_or(&[], Vec::as_slice)
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
            claims.flatten().flatten().map(|claim| &claim.member).next()
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
                let claims = index.claims.get(&*listed.tool.name).into_iter().flatten();
                let mut claims = claims.filter(|claim| claim.member == listed.member).filter_map(|c| c.tool.as_ref());
                assert!(claims.all(|(claimed, _)| claimed == name), "{name} is what is claimed");
                if let Some(former) = &listed.former {
                    *counts.entry(former).or_default() += 1;
                    assert_eq!(index.former.get(former), Some(name));
                }
                if let Some(plain) = &listed.wants {
                    let wish = Wish { scope: scope.clone(), name: Arc::clone(name) };
                    assert!(self.wishes(plain).contains(&wish), "{plain} is wanted");
                    assert!(!self.may_have(plain, &wish, false), "{name} could be {plain}");
                    wishes += 1;
                }
            }
            let former = index.exposed.values().filter(|listed| listed.former.is_some()).count();
            assert_eq!(index.former.len(), former);
        }
        assert_eq!(self.wanted.values().map(Vec::len).sum::<usize>(), wishes);
        let counted: HashMap<&str, usize> =
            self.exposed.iter().map(|(name, counts)| (&**name, counts.total())).collect();
        assert_eq!(counted, counts);
    }
}
