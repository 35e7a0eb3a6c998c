//! Names: under which one each tool is exposed, who claims what, and how both come and go with a member.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::wishes::Wish;
use super::{Claim, Index, Listed, ScopeIndex};
use crate::naming;
use crate::principal::Scope;
use crate::provider::ProviderId;
use crate::tool::{Catalog, Tool};

/// What a member's tools were exposed as, by its own names for them.
pub(super) type Names = HashMap<Arc<str>, Before>;

/// How a tool was exposed.
pub(super) struct Before {
    tool: Arc<Tool>,
    name: Arc<str>,
    former: Option<Arc<str>>,
}

/// What a member had before it was withdrawn.
#[derive(Default)]
pub(super) struct Withdrawn {
    pub(super) scope: Option<Scope>,
    pub(super) names: Names,
    /// Its own names and prefixes, dotted and bare.
    pub(super) claims: Vec<String>,
}

impl Index {
    /// Enters a member's tools and prefixes. A name that it lists twice counts once, and a tool that was exposed
    /// `before` keeps its name: clients remember names, and whoever offers a tool may reorder its list.
    pub(super) fn enter(&mut self, id: &ProviderId, catalog: Catalog, before: &Names) {
        let weight = catalog.weight();
        let Some(member) = self.members.get(id) else { return };
        let (scope, age, grant) = (member.scope.clone(), member.age, member.grant.clone());
        let mut exposed = Vec::with_capacity(catalog.tools.len());
        let mut claims: Vec<String> = Vec::with_capacity(catalog.tools.len() + catalog.prefixes.len());
        let mut bare = Vec::new();
        let mut wishes = Vec::new();
        let mut seen = HashSet::with_capacity(catalog.tools.len());
        let tools = catalog.tools.into_iter().filter(|tool| seen.insert(Arc::clone(&tool.name)));
        let kept = |tool: &Tool| before.get(&tool.name).filter(|before| before.tool.wish == tool.wish);
        let (known, new): (Vec<Tool>, Vec<Tool>) = tools.partition(|tool| kept(tool).is_some());
        for tool in known.into_iter().chain(new) {
            let own = tool.name.to_string();
            let kept = kept(&tool).filter(|before| !self.is_taken(&scope, &before.name, id));
            let former = kept.and_then(|before| before.former.clone()).filter(|name| !self.is_taken(&scope, name, id));
            let address = tool.address(id);
            let plain: Arc<str> = naming::expose(&tool.wish, &address).into();
            let name = kept.map_or_else(|| self.free_name(&scope, id, &plain, &address), |b| Arc::clone(&b.name));
            let wants = (name != plain).then_some(plain);
            if let Some(plain) = &wants {
                let wish = Wish { scope: scope.clone(), name: Arc::clone(&name), own: Arc::clone(&tool.name) };
                self.wish(plain, id, wish);
                if kept.is_none() {
                    wishes.push((Arc::clone(plain), Arc::clone(&name), Arc::clone(&tool.name)));
                }
            }
            let tool = Arc::new(tool);
            let index = self.scopes.entry(scope.clone()).or_default();
            for name in [Some(&name), former.as_ref()].into_iter().flatten() {
                *self.exposed.entry(Arc::clone(name)).or_default().of(&scope) += 1;
            }
            index.former.extend(former.clone().map(|former| (former, Arc::clone(&name))));
            let listed = Listed { member: id.clone(), tool: Arc::clone(&tool), wants, former };
            index.exposed.insert(Arc::clone(&name), listed);
            exposed.push(Arc::clone(&name));
            if let Some(short) = &tool.short {
                let claim = Claim { member: id.clone(), tool: Some((Arc::clone(&name), Arc::clone(&tool))) };
                index.short.entry(Arc::clone(short)).or_default().push(claim);
            }
            let claim = Claim { member: id.clone(), tool: Some((name, tool)) };
            if own.contains('.') {
                index.claims.entry(own.clone()).or_default().insert(claim, age, &grant);
                claims.push(own);
            } else if catalog.bare_names {
                index.bare.entry(own.clone()).or_default().insert(claim, age, &grant);
                bare.push(own);
            }
        }
        for prefix in &catalog.prefixes {
            let index = self.scopes.entry(scope.clone()).or_default();
            let held = index.claims.entry(prefix.clone()).or_default();
            let [tool, covers] = held.of(age).map(|claim| claim.is_some());
            if !covers {
                // A described tool of the same name is in the member's claims already.
                if !tool {
                    claims.push(prefix.clone());
                }
                held.insert(Claim { member: id.clone(), tool: None }, age, &grant);
            }
        }
        if let Some(member) = self.members.get_mut(id) {
            member.weight = weight + member.about.len();
            member.room = catalog.room;
            member.bare_names = catalog.bare_names;
            member.preferred = catalog.preferred;
            member.unlisted = catalog.unlisted;
            member.exposed = exposed;
            member.claims = claims;
            member.bare = bare;
            member.prefixes = catalog.prefixes;
        }
        for (plain, name, own) in wishes {
            self.arrive(&plain, &Wish { scope: scope.clone(), name, own });
        }
    }

    /// The plain name if nobody has it, and nobody who has been here longer wants it; else one with a suffix.
    fn free_name(&self, scope: &Scope, id: &ProviderId, plain: &Arc<str>, address: &str) -> Arc<str> {
        if !self.is_taken(scope, plain, id) && !self.wanted.contains_key(plain) {
            return Arc::clone(plain);
        }
        self.longer_name(scope, id, plain, address)
    }

    pub(super) fn longer_name(&self, scope: &Scope, id: &ProviderId, plain: &str, address: &str) -> Arc<str> {
        let mut attempt = 0_u32;
        loop {
            // The second suffix is for two addresses with one hash, which is next to never.
            let salt = if attempt == 0 { address.to_owned() } else { format!("{address}#{attempt}") };
            let name: Arc<str> = naming::with_hash(plain, &salt).into();
            if !self.is_taken(scope, &name, id) {
                return name;
            }
            attempt += 1;
        }
    }

    /// Whether somebody else goes by this name: as an exposed one, or as what a provider with another grant calls its
    /// own, which a newcomer must not take from it by having it made out of a dotted name.
    pub(super) fn is_taken(&self, scope: &Scope, name: &str, id: &ProviderId) -> bool {
        let goes_by = |index: &ScopeIndex| index.exposed.contains_key(name) || index.former.contains_key(name);
        self.scopes.get(scope).is_some_and(goes_by) || self.is_reserved(scope, name, id)
    }

    /// Whether it is taken by something that no tool of the same scope could hand over.
    pub(super) fn is_reserved(&self, scope: &Scope, name: &str, id: &ProviderId) -> bool {
        let held = |index: &ScopeIndex| {
            let grant = self.members.get(id).map(|member| &member.grant);
            let mut claims = index.claims.get(name).into_iter().chain(index.bare.get(name));
            claims.any(|claims| claims.foremost(false, grant).is_some())
        };
        let here = self.scopes.get(scope);
        let exposed = here.is_some_and(|index| index.exposed.contains_key(name));
        // What is exposed right here is among those that are counted, unless its kind of scope is left out.
        let itself = exposed && matches!(scope, Scope::Everyone | Scope::Channel(_));
        self.exposed.get(name).is_some_and(|counts| counts.beside(scope) > usize::from(itself))
            || here.is_some_and(held)
    }

    /// Takes a member's names and claims out, and returns them.
    pub(super) fn withdraw_names(&mut self, id: &ProviderId) -> Withdrawn {
        let mut withdrawn = Withdrawn::default();
        let Some(member) = self.members.get_mut(id) else { return withdrawn };
        let (scope, age) = (member.scope.clone(), member.age);
        withdrawn.scope = Some(scope.clone());
        let (exposed, claims) = (std::mem::take(&mut member.exposed), std::mem::take(&mut member.claims));
        let bare = std::mem::take(&mut member.bare);
        member.prefixes.clear();
        for name in exposed {
            let Some(index) = self.scopes.get_mut(&scope) else { break };
            let Some(listed) = index.exposed.remove(&name) else { continue };
            if let Some(short) = &listed.tool.short
                && let Some(claims) = index.short.get_mut(short)
            {
                claims.retain(|claim| claim.member != *id);
                if claims.is_empty() {
                    index.short.remove(short);
                }
            }
            if let Some(former) = &listed.former {
                index.former.remove(former);
                self.uncount(&scope, former);
            }
            let own = Arc::clone(&listed.tool.name);
            if let Some(plain) = &listed.wants {
                let wish = Wish { scope: scope.clone(), name: Arc::clone(&name), own: Arc::clone(&own) };
                self.unwish(plain, id, &wish);
            }
            self.uncount(&scope, &name);
            withdrawn.names.insert(own, Before { tool: listed.tool, name, former: listed.former });
        }
        let Some(index) = self.scopes.get_mut(&scope) else { return withdrawn };
        for (table, names) in [(&mut index.claims, &claims), (&mut index.bare, &bare)] {
            for name in names {
                if let Some(held) = table.get_mut(name) {
                    held.remove(age);
                    if held.is_empty() {
                        table.remove(name);
                    }
                }
            }
        }
        if index.exposed.is_empty() && index.claims.is_empty() && index.bare.is_empty() {
            self.scopes.remove(&scope);
        }
        withdrawn.claims = claims;
        withdrawn.claims.extend(bare);
        withdrawn
    }

    pub(super) fn uncount(&mut self, scope: &Scope, name: &str) {
        if let Some(counts) = self.exposed.get_mut(name) {
            *counts.of(scope) -= 1;
            if counts.total() == 0 {
                self.exposed.remove(name);
            }
        }
    }
}

impl Withdrawn {
    /// Every name that it went by.
    pub(super) fn exposed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.values().flat_map(|before| [Some(&before.name), before.former.as_ref()]).flatten()
    }
}

/// Counts, by the kind of scope.
#[derive(Default, Clone, Copy)]
pub(super) struct ByKind {
    everyone: usize,
    session: usize,
    channel: usize,
    user: usize,
}

impl ByKind {
    pub(super) fn of(&mut self, scope: &Scope) -> &mut usize {
        match scope {
            Scope::Everyone => &mut self.everyone,
            Scope::Session(_) => &mut self.session,
            Scope::Channel(_) => &mut self.channel,
            Scope::User(_) => &mut self.user,
        }
    }

    pub(super) fn total(self) -> usize {
        self.everyone + self.session + self.channel + self.user
    }

    /// How many of the scopes can be seen together with this one. A view is in one session and of one user, so two
    /// sessions may have a name each, and two users as well; it can be in any number of channels.
    fn beside(self, scope: &Scope) -> usize {
        match scope {
            Scope::Everyone | Scope::Channel(_) => self.total(),
            Scope::Session(_) => self.total() - self.session,
            Scope::User(_) => self.total() - self.user,
        }
    }
}
