//! What the directory holds, and how it changes. All under one lock, all without waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AttachError, MemberView, ToolPage, ToolView};
use crate::documents::{Documents, DocumentsView};
use crate::json::RawJson;
use crate::limits::Slots;
use crate::naming;
use crate::principal::{Scope, View};
use crate::provider::{GrantId, Provider, ProviderId};
use crate::tool::{Catalog, Tool};

#[derive(Default)]
pub(super) struct Index {
    members: HashMap<ProviderId, Member>,
    pub(super) scopes: HashMap<Scope, ScopeIndex>,
    /// How many scopes of each kind expose a name, so that no view sees one name twice.
    exposed: HashMap<Arc<str>, ByKind>,
    /// Counts admissions: tells registrations of one id apart, and gives each member its age.
    counter: u64,
}

/// Counts, by the kind of scope.
#[derive(Default, Clone, Copy)]
struct ByKind {
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

/// What a member's tools were exposed as, by its own names for them.
type Names = HashMap<Arc<str>, (Arc<Tool>, Arc<str>)>;

#[derive(Default)]
pub(super) struct ScopeIndex {
    pub(super) exposed: BTreeMap<Arc<str>, Listed>,
    /// By a provider's own name or prefix.
    pub(super) claims: HashMap<String, Vec<Claim>>,
    /// By the undotted name of a host's tool. Every host has a `Bash`, so that these are nobody's own: one after another
    /// stands in for the first.
    pub(super) bare: HashMap<String, Vec<Claim>>,
    /// By the short name of a tool whose name carries its provider's.
    pub(super) short: HashMap<Arc<str>, Vec<Claim>>,
}

pub(super) struct Listed {
    pub(super) member: ProviderId,
    pub(super) tool: Arc<Tool>,
}

pub(super) struct Claim {
    pub(super) member: ProviderId,
    /// The exposed name, for a described tool; `None` is a prefix.
    pub(super) tool: Option<(Arc<str>, Arc<Tool>)>,
}

pub(super) struct Member {
    pub(super) id: ProviderId,
    pub(super) grant: GrantId,
    /// The lower, the longer it has been here; kept over reconnects.
    pub(super) age: u64,
    pub(super) presence: Presence,
    generation: u64,
    scope: Scope,
    pub(super) bare_names: bool,
    preferred: bool,
    exposed: Vec<Arc<str>>,
    claims: Vec<String>,
    /// The undotted names of its tools. One that has any is a host.
    bare: Vec<String>,
    prefixes: Vec<String>,
    about: RawJson,
    /// About how many bytes it takes.
    weight: usize,
}

/// How much of those who left is kept, by number and by the size of what they had introduced themselves with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remembered {
    pub(super) members: usize,
    pub(super) bytes: usize,
}

pub(super) enum Presence {
    Online {
        provider: Arc<dyn Provider>,
        slots: Arc<Slots>,
        since: Instant,
        replaced: CancellationToken,
    },
    /// `kept` while its registration is: it will be back, however long that takes.
    Offline {
        at: Instant,
        kept: bool,
        /// Those of a provider that will be back.
        documents: Option<Arc<dyn Documents>>,
    },
}

impl Member {
    pub(super) fn new(id: ProviderId, scope: Scope, grant: GrantId, about: RawJson, presence: Presence) -> Self {
        Self {
            id,
            grant,
            age: 0,
            presence,
            generation: 0,
            scope,
            bare_names: false,
            preferred: false,
            exposed: Vec::new(),
            claims: Vec::new(),
            bare: Vec::new(),
            prefixes: Vec::new(),
            about,
            weight: 0,
        }
    }

    /// Whether what both claim is this one's: it has a grant and the other has none, or it was here first.
    pub(super) fn goes_before(&self, other: &Self) -> bool {
        match (self.grant.is_none(), other.grant.is_none()) {
            (false, true) => true,
            (true, false) => false,
            _ => self.age < other.age,
        }
    }

    pub(super) fn is_online(&self) -> bool {
        matches!(self.presence, Presence::Online { .. })
    }

    /// The order in which hosts are asked for a bare name, the first one first: who is here; whom the operator wants; who
    /// has a grant; who has been here longest.
    pub(super) fn host_order(&self) -> (bool, bool, bool, u64) {
        (!self.is_online(), !self.preferred, self.grant.is_none(), self.age)
    }
}

impl Index {
    pub(super) fn member(&self, id: &ProviderId) -> Option<&Member> {
        self.members.get(id)
    }

    pub(super) fn exposed_name(&self, id: &ProviderId, own: &str) -> Option<Arc<str>> {
        let member = self.members.get(id)?;
        let scope = self.scopes.get(&member.scope)?;
        let of_own = |name: &&Arc<str>| scope.exposed.get(*name).is_some_and(|listed| &*listed.tool.name == own);
        member.exposed.iter().find(of_own).cloned()
    }

    /// Returns the new registration's generation.
    pub(super) fn admit(
        &mut self,
        mut member: Member,
        catalog: Catalog,
        may_take_over: bool,
    ) -> Result<u64, AttachError> {
        self.counter += 1;
        member.generation = self.counter;
        member.age = self.counter;
        if let Some(old) = self.members.get(&member.id) {
            match (old.grant == member.grant, may_take_over || old.grant.is_none()) {
                (true, _) => member.age = old.age,
                // What the former one held was its own; the newcomer's claims are new.
                (false, true) => {}
                (false, false) => return Err(AttachError::HeldByAnother(member.id)),
            }
        }
        let generation = member.generation;
        let id = member.id.clone();
        let names = self.withdraw_names(&id);
        if let Some(old) = self.members.insert(id.clone(), member)
            && let Presence::Online { slots, replaced, .. } = old.presence
        {
            slots.close();
            replaced.cancel();
        }
        self.enter(&id, catalog, &names);
        Ok(generation)
    }

    pub(super) fn publish(&mut self, id: &ProviderId, generation: u64, catalog: Catalog) -> bool {
        if !self.is_current(id, generation) {
            return false;
        }
        let names = self.withdraw_names(id);
        self.enter(id, catalog, &names);
        true
    }

    pub(super) fn detach(&mut self, id: &ProviderId, generation: u64, kept: bool) -> bool {
        if !self.is_current(id, generation) {
            return false;
        }
        let Some(member) = self.members.get_mut(id) else { return false };
        let (at, documents) = match &member.presence {
            Presence::Online { slots, provider, .. } => {
                slots.close();
                (Instant::now(), provider.documents())
            }
            Presence::Offline { kept: before, .. } if *before == kept => return false,
            Presence::Offline { at, documents, .. } => (*at, documents.clone()),
        };
        member.presence = Presence::Offline { at, kept, documents: documents.filter(|_| kept) };
        true
    }

    pub(super) fn withdraw(&mut self, id: &ProviderId, generation: u64) -> bool {
        self.is_current(id, generation) && self.remove(id)
    }

    /// `true` when somebody was forgotten. What is remembered is bounded for each grant by itself, so that nobody can
    /// push another one out of memory by coming and going.
    pub(super) fn forget_expired(&mut self, memory: Duration, most: Remembered) -> bool {
        let mut gone: Vec<(Instant, &Member)> = self
            .members
            .values()
            .filter_map(|member| match member.presence {
                Presence::Offline { at, kept: false, .. } => Some((at, member)),
                Presence::Offline { kept: true, .. } | Presence::Online { .. } => None,
            })
            .collect();
        gone.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut kept: HashMap<&GrantId, Remembered> = HashMap::new();
        let mut expired = Vec::new();
        for (at, member) in gone {
            let sum = kept.entry(&member.grant).or_default();
            sum.members += 1;
            sum.bytes += member.weight;
            if sum.members > most.members || sum.bytes > most.bytes || at.elapsed() >= memory {
                expired.push(member.id.clone());
            }
        }
        expired.iter().filter(|id| self.remove(id)).count() > 0
    }

    pub(super) fn list(
        &self,
        view: &View,
        cursor: Option<&str>,
        limit: usize,
        keep: impl Fn(&ToolView) -> bool,
    ) -> ToolPage {
        let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut tools: Vec<ToolView> = Vec::new();
        for index in view.scopes().filter_map(|scope| self.scopes.get(scope)) {
            let page = index
                .exposed
                .range::<str, _>((from, Bound::Unbounded))
                .filter(|(_, listed)| super::resolve::blocker_of(self, index, listed).is_none())
                .filter_map(|(name, listed)| {
                    let online = self.members.get(&listed.member)?.is_online();
                    let (name, tool) = (Arc::clone(name), Arc::clone(&listed.tool));
                    Some(ToolView { name, tool, provider: listed.member.clone(), online })
                })
                .filter(|tool| keep(tool))
                .take(limit.saturating_add(1));
            tools.extend(page);
        }
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        // Of a name that a view sees twice, because it names a scope twice, the first is what a call resolves to.
        tools.dedup_by(|a, b| a.name == b.name);
        let more = tools.len() > limit;
        tools.truncate(limit);
        let next = more.then(|| tools.last().map(|tool| tool.name.to_string())).flatten();
        ToolPage { tools, next }
    }

    /// The providers that a view can see and that have documents, by id.
    pub(super) fn documents(&self, view: &View) -> Vec<DocumentsView> {
        let seen = self.members.values().filter(|member| view.scopes().any(|scope| *scope == member.scope));
        let mut found: Vec<_> = seen
            .filter_map(|member| {
                let documents = match &member.presence {
                    Presence::Online { provider, .. } => provider.documents()?,
                    Presence::Offline { documents, .. } => documents.clone()?,
                };
                Some(DocumentsView { provider: member.id.clone(), documents, online: member.is_online() })
            })
            .collect();
        found.sort_by(|a, b| a.provider.cmp(&b.provider));
        found
    }

    pub(super) fn members(&self, kind: &str) -> Vec<MemberView> {
        let primary = self.primary();
        let of_kind = self.members.values().filter(|member| member.id.kind == kind);
        let mut views: Vec<_> = of_kind.map(|member| self.view(member, primary)).collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Whether there is anybody on whom a bare name could run. Asked for wrong names, of which there may be many.
    pub(super) fn has_host(&self) -> bool {
        self.scopes.get(&Scope::Everyone).is_some_and(|index| !index.bare.is_empty())
    }

    pub(super) fn online(&self, kind: &str) -> usize {
        self.members.values().filter(|member| member.id.kind == kind && member.is_online()).count()
    }

    /// The host on which bare names run, for everyone.
    fn primary(&self) -> Option<&ProviderId> {
        let hosts = self.members.values().filter(|member| member.scope == Scope::Everyone && !member.bare.is_empty());
        hosts.filter(|member| member.is_online()).min_by_key(|member| member.host_order()).map(|member| &member.id)
    }

    fn view(&self, member: &Member, primary: Option<&ProviderId>) -> MemberView {
        let (gone_for, attached_for, running) = match &member.presence {
            Presence::Online { slots, since, .. } => (None, since.elapsed(), slots.running()),
            Presence::Offline { at, .. } => (Some(at.elapsed()), Duration::ZERO, 0),
        };
        let blocked = self.scopes.get(&member.scope).map_or_else(Vec::new, |index| {
            let blocked_by = |claim: &String| {
                Some((claim.clone(), super::resolve::blocker(self, index, claim, &member.id)?.clone()))
            };
            member.claims.iter().filter_map(blocked_by).collect()
        });
        let scope = self.scopes.get(&member.scope);
        let capabilities = member.exposed.iter().filter_map(|name| scope?.exposed.get(name));
        let capabilities = capabilities.flat_map(|listed| listed.tool.capabilities.iter().cloned());
        MemberView {
            capabilities: capabilities.collect::<BTreeSet<_>>().into_iter().collect(),
            host: !member.bare.is_empty(),
            primary: primary == Some(&member.id),
            id: member.id.clone(),
            scope: member.scope.clone(),
            gone_for,
            attached_for,
            running,
            tools: member.exposed.clone(),
            prefixes: member.prefixes.clone(),
            blocked,
            about: member.about.clone(),
        }
    }

    fn is_current(&self, id: &ProviderId, generation: u64) -> bool {
        self.members.get(id).is_some_and(|member| member.generation == generation)
    }

    /// Enters a member's tools and prefixes. A name that it lists twice counts once, and a tool that was exposed
    /// `before` keeps its name: clients remember names, and whoever offers a tool may reorder its list.
    fn enter(&mut self, id: &ProviderId, catalog: Catalog, before: &Names) {
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

    fn remove(&mut self, id: &ProviderId) -> bool {
        self.withdraw_names(id);
        let Some(member) = self.members.remove(id) else { return false };
        if let Presence::Online { slots, .. } = member.presence {
            slots.close();
        }
        true
    }

    /// Takes a member's names and claims out, and returns the names.
    fn withdraw_names(&mut self, id: &ProviderId) -> Names {
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

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.scopes.is_empty() && self.exposed.is_empty()
    }
}
