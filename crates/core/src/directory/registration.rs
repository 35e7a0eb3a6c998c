//! A provider's side of its entry in the directory.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::index::{Index, OfflineReason};
use super::{Directory, definitions};
use crate::principal::Scope;
use crate::provider::ProviderId;
use crate::tool::Catalog;

/// A provider's registration in the directory. Dropping it marks the provider as offline, unless a
/// newer registration has replaced it.
#[derive(Debug)]
pub struct Registration {
    pub(super) directory: Arc<Directory>,
    pub(super) id: ProviderId,
    pub(super) scope: Scope,
    pub(super) generation: u64,
    pub(super) replaced: CancellationToken,
}

impl Registration {
    /// Replaces the provider's catalog. Entries that existed before keep their age.
    pub fn publish(&self, catalog: Catalog) {
        self.publish_with(catalog, None);
    }

    /// Publishes with a supplied age, as for [`Directory::attach_at`].
    pub fn publish_at(&self, catalog: Catalog, age: u64) {
        self.publish_with(catalog, Some(age));
    }

    fn publish_with(&self, mut catalog: Catalog, age: Option<u64>) {
        let described = definitions::describe(&mut catalog);
        let published = self.directory.change(Some(&self.scope), |index| {
            let age = age.unwrap_or_else(|| index.next_age());
            index.publish(&self.id, self.generation, catalog, described, age)
        });
        self.directory.report(&self.id, &published.unwrap_or_else(|same| same));
    }

    /// Announces a change that the catalog does not show, such as one that only the provider
    /// reports. It reaches the principals that see a tool of the provider.
    pub fn announce(&self) {
        self.change(|index| index.announce(&self.id, self.generation));
    }

    /// Fires when a newer connection or a provider of a better rank has taken the id.
    pub fn replaced(&self) -> CancellationToken {
        self.replaced.clone()
    }

    /// Marks the provider as offline, and keeps its names while this registration lives. The
    /// provider is expected to attach again.
    pub fn set_offline(&self) {
        self.change(|index| index.detach(&self.id, self.generation, OfflineReason::Expected));
    }

    /// Marks the provider as stopped at its own announcement. Its names are remembered as for a
    /// lost provider. Calls wait for it for a shorter time, because a person most likely stopped
    /// it.
    pub fn stopped(self) {
        self.change(|index| index.detach(&self.id, self.generation, OfflineReason::Stopped));
    }

    /// Removes the provider for good. Its names are free immediately.
    pub fn withdraw(self) {
        self.change(|index| index.withdraw(&self.id, self.generation));
        self.directory.unsaved.notify_one();
    }

    fn change(&self, work: impl FnOnce(&mut Index) -> bool) {
        self.directory.change(Some(&self.scope), |index| work(index).then_some(()).ok_or(())).ok();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.change(|index| index.detach(&self.id, self.generation, OfflineReason::Lost));
    }
}
