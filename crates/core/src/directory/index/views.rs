//! What is seen of the directory: lists of tools, documents and members.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{Claims, Index, Leaving, Member, Presence};
use crate::directory::{MemberView, Renamed, ToolPage, ToolView, resolve};
use crate::documents::DocumentsView;
use crate::principal::{Scope, View};
use crate::provider::ProviderId;

impl Index {
    pub(in crate::directory) fn list(
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
                .filter(|(_, listed)| resolve::blocker_of(self, index, listed).is_none())
                .filter_map(|(name, listed)| {
                    let member = self.members.get(&listed.member)?;
                    let (name, tool) = (Arc::clone(name), Arc::clone(&listed.tool));
                    let (scope, online) = (member.scope.clone(), member.is_online());
                    let (provider, also) = (listed.member.clone(), listed.former.clone());
                    Some(ToolView { name, also, tool, provider, scope, online })
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
    pub(in crate::directory) fn documents(&self, view: &View) -> Vec<DocumentsView> {
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

    pub(in crate::directory) fn members(&self, kind: &str) -> Vec<MemberView> {
        let primary = self.primary();
        let of_kind = self.members.values().filter(|member| member.id.kind == kind);
        let mut views: Vec<_> = of_kind.map(|member| self.view(member, primary)).collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Whether there is anybody on whom a bare name could run. Asked for wrong names, of which there may be many.
    pub(in crate::directory) fn has_host(&self) -> bool {
        let hosts = self.scopes.get(&Scope::Everyone).into_iter().flat_map(|index| index.bare.values());
        let mut hosts = hosts.flat_map(Claims::iter).filter_map(|claim| self.member(&claim.member));
        hosts.any(Member::is_online)
    }

    pub(in crate::directory) fn online(&self, kind: &str) -> usize {
        self.members.values().filter(|member| member.id.kind == kind && member.is_online()).count()
    }

    /// The host on which bare names run, for everyone.
    fn primary(&self) -> Option<&ProviderId> {
        let hosts = self.members.values().filter(|member| member.scope == Scope::Everyone && !member.bare.is_empty());
        hosts.filter(|member| member.is_online()).min_by_key(|member| member.host_order()).map(|member| &member.id)
    }

    pub(in crate::directory) fn renamed(&self) -> Vec<(ProviderId, Renamed)> {
        let here = self.members.values().filter(|member| member.is_online());
        let renamed = here.flat_map(|member| self.renamed_of(member).map(|renamed| (member.id.clone(), renamed)));
        let mut all: Vec<_> = renamed.collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// A member's tools that go by longer names and can be called by them.
    fn renamed_of<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = Renamed> + 'a {
        let scope = self.scopes.get(&member.scope);
        let listed = member.exposed.iter().filter_map(move |name| Some((name, scope?, scope?.exposed.get(name)?)));
        let callable = listed.filter(move |(_, index, listed)| resolve::blocker_of(self, index, listed).is_none());
        callable.filter_map(move |(name, _, listed)| {
            let wanted = listed.wants.clone()?;
            let held_by = self.holder(&member.scope, &wanted)?.clone();
            let holder_away = self.members.get(&held_by).is_some_and(|holder| !holder.is_online());
            Some(Renamed { name: Arc::clone(name), wanted, held_by, holder_away })
        })
    }

    fn view(&self, member: &Member, primary: Option<&ProviderId>) -> MemberView {
        let (gone_for, attached_for, running) = match &member.presence {
            Presence::Online { slots, since, .. } => (None, since.elapsed(), slots.running()),
            Presence::Offline { at, .. } => (Some(at.elapsed()), Duration::ZERO, 0),
        };
        let blocked = self.scopes.get(&member.scope).map_or_else(Vec::new, |index| {
            let blocked_by =
                |claim: &String| Some((claim.clone(), resolve::blocker(self, index, claim, &member.id)?.clone()));
            member.claims.iter().filter_map(blocked_by).collect()
        });
        let scope = self.scopes.get(&member.scope);
        let renamed = self.renamed_of(member).collect();
        let listed = || member.exposed.iter().filter_map(|name| Some((name, &scope?.exposed.get(name)?.tool)));
        let capabilities = listed().flat_map(|(_, tool)| tool.capabilities.iter().cloned());
        let flawed =
            listed().filter_map(|(name, tool)| Some((Arc::clone(name), tool.input.as_ref()?.flaw()?.to_owned())));
        let mut flawed: Vec<_> = flawed.collect();
        flawed.sort();
        MemberView {
            capabilities: capabilities.collect::<BTreeSet<_>>().into_iter().collect(),
            host: !member.bare.is_empty(),
            primary: primary == Some(&member.id),
            id: member.id.clone(),
            scope: member.scope.clone(),
            gone_for,
            stopped: matches!(member.presence, Presence::Offline { why: Leaving::Stopped, .. }),
            attached_for,
            running,
            tools: member.exposed.clone(),
            prefixes: member.prefixes.clone(),
            blocked,
            renamed,
            flawed,
            about: member.about.clone(),
        }
    }
}
