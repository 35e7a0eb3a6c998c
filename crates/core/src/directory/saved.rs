//! Providers that are remembered across a restart of the gateway.
//!
//! The saved state equals that of an offline provider in the directory: its names, their ages and
//! its grant. A restored provider is offline, with its previous rank, until it attaches again or is
//! forgotten. So it holds the same names as without a restart, and never more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Directory;
use super::index::{Index, Member, OfflineReason, Presence};
use crate::provider::{Grant, ProviderId};
use crate::tool::{Catalog, Tool};
use sa_limits::budget::Permit;
use sa_text::json::RawJson;

/// The remembered state of a provider that everyone can see, for a store.
#[derive(Debug, Clone)]
pub struct SavedProvider {
    pub id: Arc<str>,
    pub grant: Grant,
    /// The age of the first claim to its id. Ages order providers across restarts, too.
    pub age: u64,
    /// Each with its own age.
    pub tools: Vec<(Arc<Tool>, u64)>,
    pub prefixes: Vec<(Arc<str>, u64)>,
    pub bare_names: bool,
    /// Whether the operator prefers bare names to run here. Not saved, because it comes from the
    /// configuration.
    pub preferred: bool,
    pub about: RawJson,
    /// The time since it went offline; `None` while it is online.
    pub gone_for: Option<Duration>,
    pub stopped: bool,
}

impl SavedProvider {
    /// Returns the approximate memory size in bytes.
    pub fn weight(&self) -> usize {
        let tools = self.tools.iter().map(|(tool, _)| tool.weight()).sum::<usize>();
        tools
            + self.prefixes.iter().map(|(prefix, _)| Catalog::prefix_weight(prefix)).sum::<usize>()
            + self.about.len()
    }

    fn of(member: &Member) -> Self {
        let (gone_for, stopped) = match &member.presence {
            Presence::Online { .. } => (None, false),
            Presence::Offline { at, why, .. } => {
                (Some(at.elapsed()), *why == OfflineReason::Stopped)
            }
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

/// The providers with an outdated saved state.
#[derive(Default)]
pub(super) struct Unsaved {
    /// Providers that have a new catalog or were forgotten.
    changed: BTreeSet<ProviderId>,
    /// Providers that only went offline. A provider can do that as fast as it can connect, so these
    /// are saved periodically.
    left: BTreeSet<ProviderId>,
}

impl Unsaved {
    pub(super) fn changed(&mut self, id: &ProviderId) {
        self.left.remove(id);
        self.changed.insert(id.clone());
    }

    /// The saved state is only outdated because the provider is offline now.
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
    /// Restores saved providers, the best rank first. `admit` decides for each whether it is
    /// remembered, and returns its budget permit. The others are forgotten. Must be called before
    /// the first provider attaches.
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
                let restored =
                    admit(&provider).is_some_and(|permit| index.restore(&id, provider, permit));
                if restored { index.unsaved.restored(&id) } else { index.unsaved.changed(&id) }
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = changed;
        self.sweep();
    }

    /// Returns some providers with an outdated saved state, at most `limit`; `None` for those to
    /// delete.
    pub fn take_unsaved_providers(&self, limit: usize) -> Vec<(ProviderId, Option<SavedProvider>)> {
        // There is rarely something to save, so calls should not wait for the write lock.
        if self.read(|index| index.unsaved.changed.is_empty()) {
            return Vec::new();
        }
        self.write(|index| {
            let taken: Vec<ProviderId> =
                index.unsaved.changed.iter().take(limit).cloned().collect();
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

    /// Marks a provider as unsaved again after saving failed.
    pub fn keep_unsaved_provider(&self, id: &ProviderId) {
        self.write(|index| index.unsaved.changed(id));
    }

    /// Includes providers that only went offline in the next save.
    pub fn save_absences(&self) {
        self.write(|index| {
            let left = std::mem::take(&mut index.unsaved.left);
            index.unsaved.changed.extend(left);
        });
        self.unsaved.notify_one();
    }
}

/// Returns the instant that is this long ago.
pub(super) fn ago(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(time).unwrap_or(now)
}
