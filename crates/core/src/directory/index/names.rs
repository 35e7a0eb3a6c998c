//! Names: under which one each tool is exposed, who claims what, and how both come and go with a member.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Claim, Index, Listed, ScopeIndex};
use crate::naming;
use crate::principal::Scope;
use crate::provider::ProviderId;
use crate::tool::{Catalog, Tool};

/// What a member's tools were exposed as, by its own names for them.
pub(super) type Names = HashMap<Arc<str>, (Arc<Tool>, Arc<str>)>;

impl Index {
    /// Enters a member's tools and prefixes. A name that it lists twice counts once, and a tool that was exposed
    /// `before` keeps its name: clients remember names, and whoever offers a tool may reorder its list.
    pub(super) fn enter(&mut self, id: &ProviderId, catalog: Catalog, before: &Names) {
        let weight = catalog.weight();
        let Some(scope) = self.members.get(id).map(|member| member.scope.clone()) else { return };
        let mut exposed = Vec::with_capacity(catalog.tools.len());
        let mut claims: Vec<String> = Vec::with_capacity(catalog.tools.len() + catalog.prefixes.len());
        let mut bare = Vec::new();
        let mut seen = HashSet::with_capacity(catalog.tools.len());
        let tools = catalog.tools.into_iter().filter(|tool| seen.insert(Arc::clone(&tool.name)));
        let kept = |tool: &Tool| {
            before.get(&tool.name).filter(|(old, _)| old.wish == tool.wish).map(|(_, name)| Arc::clone(name))
        };
        let (known, new): (Vec<Tool>, Vec<Tool>) = tools.partition(|tool| kept(tool).is_some());
        for tool in known.into_iter().chain(new) {
            let own = tool.name.to_string();
            let kept = kept(&tool).filter(|name| !self.is_taken(&scope, name, id));
            let name = kept.unwrap_or_else(|| self.free_name(&scope, id, &tool));
            let tool = Arc::new(tool);
            *self.exposed.entry(Arc::clone(&name)).or_default().of(&scope) += 1;
            let index = self.scopes.entry(scope.clone()).or_default();
            index.exposed.insert(Arc::clone(&name), Listed { member: id.clone(), tool: Arc::clone(&tool) });
            exposed.push(Arc::clone(&name));
            if let Some(short) = &tool.short {
                let claim = Claim { member: id.clone(), tool: Some((Arc::clone(&name), Arc::clone(&tool))) };
                index.short.entry(Arc::clone(short)).or_default().push(claim);
            }
            let claim = Claim { member: id.clone(), tool: Some((name, tool)) };
            if own.contains('.') {
                index.claims.entry(own.clone()).or_default().push(claim);
                claims.push(own);
            } else if catalog.bare_names {
                index.bare.entry(own.clone()).or_default().push(claim);
                bare.push(own);
            }
        }
        for prefix in &catalog.prefixes {
            let index = self.scopes.entry(scope.clone()).or_default();
            let held = index.claims.entry(prefix.clone()).or_default();
            if !held.iter().any(|claim| claim.member == *id && claim.tool.is_none()) {
                // A described tool of the same name is in the member's claims already.
                if !held.iter().any(|claim| claim.member == *id) {
                    claims.push(prefix.clone());
                }
                held.push(Claim { member: id.clone(), tool: None });
            }
        }
        if let Some(member) = self.members.get_mut(id) {
            member.weight = weight + member.about.len();
            member.bare_names = catalog.bare_names;
            member.preferred = catalog.preferred;
            member.unlisted = catalog.unlisted;
            member.exposed = exposed;
            member.claims = claims;
            member.bare = bare;
            member.prefixes = catalog.prefixes;
        }
    }

    fn free_name(&self, scope: &Scope, id: &ProviderId, tool: &Tool) -> Arc<str> {
        let address = format!("{}/{}/{}", id.kind, id.id, tool.name);
        let mut name: Arc<str> = naming::expose(&tool.wish, &address).into();
        let mut attempt = 0_u32;
        while self.is_taken(scope, &name, id) {
            // The second suffix is for two addresses with one hash, which is next to never.
            let salt = if attempt == 0 { address.clone() } else { format!("{address}#{attempt}") };
            name = naming::with_hash(&naming::expose(&tool.wish, &address), &salt).into();
            attempt += 1;
        }
        name
    }

    /// Whether somebody else goes by this name: as an exposed one, or as what a provider with another grant calls its
    /// own, which a newcomer must not take from it by having it made out of a dotted name.
    fn is_taken(&self, scope: &Scope, name: &str, id: &ProviderId) -> bool {
        let held = |index: &ScopeIndex| {
            let grant = |id: &ProviderId| self.members.get(id).map(|member| &member.grant);
            let claims = index.claims.get(name).into_iter().chain(index.bare.get(name)).flatten();
            claims.filter(|claim| claim.member != *id).any(|claim| grant(&claim.member) != grant(id))
        };
        self.exposed.get(name).is_some_and(|counts| counts.beside(scope) > 0)
            || self.scopes.get(scope).is_some_and(|index| index.exposed.contains_key(name) || held(index))
    }

    /// Takes a member's names and claims out, and returns the names.
    pub(super) fn withdraw_names(&mut self, id: &ProviderId) -> Names {
        let mut names = Names::new();
        let Some(member) = self.members.get_mut(id) else { return names };
        let scope = member.scope.clone();
        let (exposed, claims) = (std::mem::take(&mut member.exposed), std::mem::take(&mut member.claims));
        let bare = std::mem::take(&mut member.bare);
        member.prefixes.clear();
        let Some(index) = self.scopes.get_mut(&scope) else { return names };
        for name in exposed {
            if let Some(listed) = index.exposed.remove(&name) {
                if let Some(short) = &listed.tool.short
                    && let Some(claims) = index.short.get_mut(short)
                {
                    claims.retain(|claim| claim.member != *id);
                    if claims.is_empty() {
                        index.short.remove(short);
                    }
                }
                names.insert(Arc::clone(&listed.tool.name), (listed.tool, Arc::clone(&name)));
            }
            if let Some(counts) = self.exposed.get_mut(&name) {
                *counts.of(&scope) -= 1;
                if counts.total() == 0 {
                    self.exposed.remove(&name);
                }
            }
        }
        for (table, names) in [(&mut index.claims, claims), (&mut index.bare, bare)] {
            for name in names {
                if let Some(held) = table.get_mut(&name) {
                    held.retain(|claim| claim.member != *id);
                    if held.is_empty() {
                        table.remove(&name);
                    }
                }
            }
        }
        if index.exposed.is_empty() && index.claims.is_empty() && index.bare.is_empty() {
            self.scopes.remove(&scope);
        }
        names
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
    fn of(&mut self, scope: &Scope) -> &mut usize {
        match scope {
            Scope::Everyone => &mut self.everyone,
            Scope::Session(_) => &mut self.session,
            Scope::Channel(_) => &mut self.channel,
            Scope::User(_) => &mut self.user,
        }
    }

    fn total(self) -> usize {
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
