//! Lists of tools, documents and members.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::contests::Losses;
use super::{Index, Member, Offer, OfflineReason, Presence, ScopeIndex};
use crate::directory::{MemberView, Renamed, ToolChange, ToolPage, ToolView, definitions};
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
        self.list_of(&self.scopes_of(view), view, cursor, limit, keep)
    }

    /// Returns the tools of a view's narrow scopes.
    pub(in crate::directory) fn list_narrow(
        &self,
        view: &View,
        keep: impl Fn(&ToolView) -> bool,
    ) -> Vec<ToolView> {
        let narrow: Vec<_> =
            view.scopes.iter().filter_map(|scope| self.scopes.get(scope)).collect();
        self.list_of(&narrow, view, None, usize::MAX - 1, keep).tools
    }

    /// Returns the tools of some of a view's scopes.
    fn list_of(
        &self,
        read: &[&ScopeIndex],
        view: &View,
        cursor: Option<&str>,
        limit: usize,
        keep: impl Fn(&ToolView) -> bool,
    ) -> ToolPage {
        let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut tools: Vec<ToolView> = Vec::new();
        let scopes = self.scopes_of(view);
        let listed = |scope, name: &Arc<str>| {
            let held = Some(name)
                .filter(|name| !name.contains('.'))
                .and_then(|name| self.held(scope, name))?;
            let (owner, offer) = (&held.by.owner, held.by.offer.as_ref()?);
            let listed_name = self.listed_as(&scopes, owner, offer)?;
            let member = self.members.get(&owner.id).filter(|_| listed_name == name)?;
            let limited = view.principal.is_limited();
            Some(ToolView {
                name: Arc::clone(name),
                leading: if limited {
                    self.leading_names(&scopes, owner, offer)
                } else {
                    Vec::new()
                },
                tool: Arc::clone(&offer.tool),
                provider: owner.id.clone(),
                scope: owner.scope.clone(),
                online: member.is_online(),
            })
        };
        for scope in read {
            let page = scope.names.range::<str, _>((from, Bound::Unbounded));
            let page = page.filter_map(|(name, _)| listed(scope, name)).filter(|tool| keep(tool));
            tools.extend(page.take(limit.saturating_add(1)));
        }
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        // If a view contains a scope twice, a name appears twice. A call resolves to the first one.
        tools.dedup_by(|a, b| a.name == b.name);
        let more = tools.len() > limit;
        tools.truncate(limit);
        let next = more.then(|| tools.last().map(|tool| tool.name.to_string())).flatten();
        ToolPage { tools, next }
    }

    /// Returns the visible providers that have documents, sorted by id.
    pub(in crate::directory) fn documents(&self, view: &View) -> Vec<DocumentsView> {
        let seen = self
            .members
            .values()
            .filter(|member| view.scopes().any(|scope| *scope == member.owner.scope));
        let mut found: Vec<_> = seen
            .filter_map(|member| {
                let documents = match &member.presence {
                    Presence::Online { provider, .. } => provider.documents()?,
                    Presence::Offline { documents, .. } => documents.clone()?,
                };
                Some(DocumentsView {
                    provider: member.owner.id.clone(),
                    documents,
                    online: member.is_online(),
                })
            })
            .collect();
        found.sort_by(|a, b| a.provider.cmp(&b.provider));
        found
    }

    pub(in crate::directory) fn members(&self, kind: &str) -> Vec<MemberView> {
        let primary = self.primary();
        let of_kind = self.members.values().filter(|member| member.owner.id.kind == kind);
        let mut views: Vec<_> = of_kind.map(|member| self.view(member, primary)).collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views
    }

    /// Returns whether bare names can run on any provider.
    pub(in crate::directory) fn has_host(&self) -> bool {
        self.members.values().any(|member| member.is_online() && member.is_host())
    }

    pub(in crate::directory) fn online(&self, kind: &str) -> usize {
        self.members
            .values()
            .filter(|member| member.owner.id.kind == kind && member.is_online())
            .count()
    }

    /// Returns the host on which bare names run for everyone. Among the online hosts of the best
    /// rank, this is the preferred one, else the oldest.
    fn primary(&self) -> Option<&ProviderId> {
        let hosts = self
            .members
            .values()
            .filter(|member| member.owner.scope == Scope::Everyone && member.is_host());
        let best = hosts.clone().map(|member| member.owner.grant.rank).min()?;
        let online = hosts.filter(|member| member.is_online() && member.owner.grant.rank == best);
        online
            .min_by_key(|member| (!member.preferred, member.owner.age))
            .map(|member| &member.owner.id)
    }

    pub(in crate::directory) fn exposed_name(
        &self,
        id: &ProviderId,
        own: &str,
    ) -> Option<Arc<str>> {
        let member = self.members.get(id)?;
        let offer = member.offers.iter().find(|offer| &*offer.tool.name == own)?;
        Some(Arc::clone(self.visible_name(member, offer)))
    }

    /// Returns the definition changes that no operator has accepted.
    pub(in crate::directory) fn tool_changes(&self) -> Vec<ToolChange> {
        let ids: OnceCell<HashMap<String, &Member>> = OnceCell::new();
        self.definitions.changes(|provider, pool, tool| {
            // There is rarely a change, so the table is only built on demand.
            let ids = ids.get_or_init(|| {
                let members = self.members.values();
                members
                    .map(|member| {
                        (format!("{}/{}", member.owner.id.kind, member.owner.id.id), member)
                    })
                    .collect()
            });
            let member =
                ids.get(provider).filter(|member| definitions::is_of(pool, &member.owner.grant))?;
            self.exposed_name(&member.owner.id, tool)
        })
    }

    /// Returns the name of a tool in lists for principals that see its provider. Falls back to the
    /// suffixed name if the tool is not listed.
    fn visible_name<'o>(&self, member: &Member, offer: &'o Offer) -> &'o Arc<str> {
        let scopes = [&member.owner.scope, &Scope::Everyone]
            .into_iter()
            .filter_map(|scope| self.scopes.get(scope));
        let scopes: Vec<&ScopeIndex> = scopes.collect();
        self.listed_as(&scopes, &member.owner, offer).unwrap_or(&offer.suffixed)
    }

    pub(in crate::directory) fn renamed(&self) -> Vec<(ProviderId, Renamed)> {
        let online = self.members.values().filter(|member| member.is_online());
        let renamed = online.flat_map(|member| {
            let renamed = self.losses(member).renamed.into_iter();
            renamed.map(|renamed| (member.owner.id.clone(), renamed))
        });
        let mut all: Vec<_> = renamed.collect();
        all.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.name.cmp(&other.name)));
        all
    }

    fn view(&self, member: &Member, primary: Option<&ProviderId>) -> MemberView {
        let (gone_for, attached_for, running) = match &member.presence {
            Presence::Online { slots, since, .. } => (None, since.elapsed(), slots.running()),
            Presence::Offline { at, .. } => (Some(at.elapsed()), Duration::ZERO, 0),
        };
        let Losses { blocked, renamed } = self.losses(member);
        let tools: Vec<_> = member
            .offers
            .iter()
            .map(|offer| Arc::clone(self.visible_name(member, offer)))
            .collect();
        let listed = || tools.iter().zip(&member.offers).map(|(name, offer)| (name, &offer.tool));
        let capabilities = listed().flat_map(|(_, tool)| tool.capabilities.iter().cloned());
        let flawed = listed().filter_map(|(name, tool)| {
            Some((Arc::clone(name), tool.schema_problem()?.into_owned()))
        });
        let mut flawed: Vec<_> = flawed.collect();
        flawed.sort();
        MemberView {
            capabilities: capabilities.collect::<BTreeSet<_>>().into_iter().collect(),
            host: member.is_host(),
            primary: primary == Some(&member.owner.id),
            id: member.owner.id.clone(),
            scope: member.owner.scope.clone(),
            gone_for,
            stopped: matches!(
                member.presence,
                Presence::Offline { why: OfflineReason::Stopped, .. }
            ),
            attached_for,
            running,
            tools,
            prefixes: member.prefixes.iter().map(|(prefix, _)| prefix.to_string()).collect(),
            blocked,
            renamed,
            flawed,
            about: member.about.clone(),
        }
    }
}
