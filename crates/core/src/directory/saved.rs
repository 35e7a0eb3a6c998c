//! Providers that are remembered over a restart of the gateway.
//!
//! What is saved of a provider is what the directory keeps of one that left: its names, their ages and its grant. A restored
//! provider is offline, with the rank that it had, until it attaches again or is forgotten. So it holds what it would hold
//! had the gateway not restarted, and never more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Directory;
use super::index::{Index, Leaving, Member, Presence};
use crate::budget::Permit;
use crate::json::RawJson;
use crate::provider::{Grant, ProviderId};
use crate::tool::{Catalog, Tool};

/// Everything that is remembered of a provider that everyone can see, for a store.
#[derive(Debug, Clone)]
pub struct SavedProvider {
    pub id: Arc<str>,
    pub grant: Grant,
    /// When its id was first claimed. Ages order providers over restarts, too.
    pub age: u64,
    /// Each with its own age.
    pub tools: Vec<(Arc<Tool>, u64)>,
    pub prefixes: Vec<(Arc<str>, u64)>,
    pub bare_names: bool,
    /// Whether the operator wants bare names to run here. Not to be saved: the configuration says so.
    pub preferred: bool,
    pub about: RawJson,
    /// `None` while it is online.
    pub gone_for: Option<Duration>,
    pub stopped: bool,
}

impl SavedProvider {
    /// About how many bytes it takes in memory.
    pub fn weight(&self) -> usize {
        let tools = self.tools.iter().map(|(tool, _)| tool.weight()).sum::<usize>();
        tools + self.prefixes.iter().map(|(prefix, _)| Catalog::prefix_weight(prefix)).sum::<usize>() + self.about.len()
    }

    fn of(member: &Member) -> Self {
        let (gone_for, stopped) = match &member.presence {
            Presence::Online { .. } => (None, false),
            Presence::Offline { at, why, .. } => (Some(at.elapsed()), *why == Leaving::Stopped),
        };
        Self {
            id: Arc::clone(&member.owner.id.id),
            grant: member.owner.grant.clone(),
            age: member.owner.age,
            tools: member.offers.iter().map(|offer| (Arc::clone(&offer.tool), offer.age)).collect(),
            prefixes: member.prefixes.clone(),
            bare_names: member.bare_names,
            preferred: member.preferred,
            about: member.about.clone(),
            gone_for,
            stopped,
        }
    }
}

/// The providers whose saved state is out of date.
#[derive(Default)]
pub(super) struct Unsaved {
    /// Those that offer something else than before, or were forgotten.
    changed: BTreeSet<ProviderId>,
    /// Those that only left. A provider can come and go as fast as it can connect, so these are saved now and then.
    left: BTreeSet<ProviderId>,
}

impl Unsaved {
    pub(super) fn changed(&mut self, id: &ProviderId) {
        self.left.remove(id);
        self.changed.insert(id.clone());
    }

    /// What is saved differs only in that the provider is gone by now.
    fn restored(&mut self, id: &ProviderId) {
        self.changed.remove(id);
        self.left.insert(id.clone());
    }

    pub(super) fn left(&mut self, id: &ProviderId) {
        if !self.changed.contains(id) {
            self.left.insert(id.clone());
        }
    }
}

impl Directory {
    /// Takes up the providers that an earlier process has saved, the best rank first. `admit` says for each whether it is
    /// remembered, and with which part of a budget; the others are forgotten. To be called before the first provider attaches.
    pub fn restore(
        &self,
        kind: &'static str,
        mut saved: Vec<SavedProvider>,
        mut admit: impl FnMut(&SavedProvider) -> Option<Arc<Permit>>,
    ) {
        saved.sort_by_key(|provider| (provider.grant.rank, provider.gone_for.unwrap_or_default()));
        let changed = self.change(None, |index| {
            for provider in saved {
                let id = ProviderId { kind, id: Arc::clone(&provider.id) };
                let restored = admit(&provider).is_some_and(|room| index.restore(&id, provider, room));
                if restored { index.unsaved.restored(&id) } else { index.unsaved.changed(&id) }
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = changed;
        self.sweep();
    }

    /// Some of the providers whose saved state is out of date, at most `limit`; `None` for those to delete.
    pub fn take_unsaved_providers(&self, limit: usize) -> Vec<(ProviderId, Option<SavedProvider>)> {
        // Nearly always there is nothing, and calls need not wait for that.
        if self.read(|index| index.unsaved.changed.is_empty()) {
            return Vec::new();
        }
        self.write(|index| {
            let taken: Vec<ProviderId> = index.unsaved.changed.iter().take(limit).cloned().collect();
            let saved = |id: ProviderId, index: &Index| {
                let saved = index.member(&id).filter(|member| member.saved).map(SavedProvider::of);
                (id, saved)
            };
            for id in &taken {
                index.unsaved.changed.remove(id);
            }
            taken.into_iter().map(|id| saved(id, index)).collect()
        })
    }

    /// Takes back a provider that could not be saved.
    pub fn keep_unsaved_provider(&self, id: &ProviderId) {
        self.write(|index| index.unsaved.changed(id));
    }

    /// Has those saved as well that only left.
    pub fn save_absences(&self) {
        self.write(|index| {
            let left = std::mem::take(&mut index.unsaved.left);
            index.unsaved.changed.extend(left);
        });
        self.unsaved.notify_one();
    }
}

/// The moment that is this long ago.
pub(super) fn ago(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(time).unwrap_or(now)
}
