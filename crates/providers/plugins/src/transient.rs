//! Plugins that were not added: a host has sent the manifest along, or an index lists it. Each is
//! a provider in its own scope, which only its call can see. So its calls are processed like all
//! others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::{ProviderId, Registration, Scope};
use sa_egress::Allowed;
use tokio::time::Instant;
use url::Url;

use crate::manifest::Manifest;
use crate::plugin::{DocumentText, Plugin};
use crate::{KIND, Plugins};

const MAX_TRANSIENTS: usize = 64;
/// The maximum size of the OpenAPI document of such a plugin. Callers cause its fetch, and up to
/// [`MAX_TRANSIENTS`] are kept in memory.
pub(crate) const MAX_DOCUMENT: usize = 4 << 20;
/// The idle timeout of such a plugin.
const IDLE: Duration = Duration::from_secs(600);
/// How long a manifest from an index is cached.
const FRESH: Duration = Duration::from_secs(60);

/// A plugin, and its id and scope in the directory.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) id: ProviderId,
    /// `None` for a plugin that every principal sees.
    pub(crate) scope: Option<Scope>,
}

#[derive(Default)]
pub(crate) struct Transients {
    known: Mutex<HashMap<String, Transient>>,
    /// By the URL from an index, or by the hash of a manifest that a host has sent along.
    fetched: Mutex<HashMap<String, (Instant, Found)>>,
}

struct Transient {
    found: Found,
    registration: Registration,
    used: Instant,
}

impl Transients {
    pub(crate) fn sweep(&self) {
        let mut known = self.known.lock();
        let idle: Vec<String> = known
            .iter()
            .filter(|(_, one)| one.used.elapsed() > IDLE)
            .map(|(key, _)| key.clone())
            .collect();
        for key in idle {
            if let Some(one) = known.remove(&key) {
                one.registration.withdraw();
            }
        }
        drop(known);
        self.fetched.lock().retain(|_, (at, _)| at.elapsed() < FRESH);
    }

    /// Returns a plugin that was prepared recently.
    pub(crate) fn fetched(&self, from: &str) -> Option<Found> {
        let fetched = self.fetched.lock();
        let found = fetched
            .get(from)
            .filter(|(at, _)| at.elapsed() < FRESH)
            .map(|(_, found)| found.clone());
        let key = found.as_ref()?.scope.as_ref();
        // It may have been evicted meanwhile.
        let known = self.known.lock();
        let there = known.values().any(|one| one.found.scope.as_ref() == key);
        found.filter(|_| there)
    }

    pub(crate) fn remember(&self, from: &str, found: &Found) {
        let mut fetched = self.fetched.lock();
        if fetched.len() >= MAX_TRANSIENTS {
            fetched.clear();
        }
        fetched.insert(from.to_owned(), (Instant::now(), found.clone()));
    }
}

impl Plugins {
    /// Returns a provider for a manifest that was not added. A plugin from a caller has a
    /// different prefix than added ones.
    pub(crate) fn transient(
        &self,
        manifest: Manifest,
        document: Option<DocumentText<'_>>,
        (base, allowed): (Option<&Url>, &Allowed),
        text: &str,
    ) -> Result<Found, String> {
        let place = base.map_or("inline", Url::as_str);
        let document_text = document.map_or("", |(text, _)| text);
        let key = blake3::hash(format!("{place}\n{allowed:?}\n{text}\n{document_text}").as_bytes())
            .to_hex()
            .to_string();
        let mut known = self.transients.known.lock();
        if let Some(one) = known.get_mut(&key) {
            one.used = Instant::now();
            return Ok(one.found.clone());
        }
        let prefix = if base.is_none() { "inline__" } else { "" };
        let plugin =
            Arc::new(Plugin::new(manifest, document, false, prefix)?.allowed(allowed.clone()));
        let id = ProviderId::new(KIND, &format!("{}#{}", plugin.identifier(), &key[..8]));
        let scope = Scope::User(format!("plugin:{key}").into());
        let found =
            Found { plugin: Arc::clone(&plugin), id: id.clone(), scope: Some(scope.clone()) };
        let registration = self.attach(id, scope, &plugin).ok_or("it cannot be offered")?;
        if known.len() >= MAX_TRANSIENTS
            && let Some(oldest) =
                known.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| key.clone())
            && let Some(one) = known.remove(&oldest)
        {
            one.registration.withdraw();
        }
        known.insert(key, Transient { found: found.clone(), registration, used: Instant::now() });
        Ok(found)
    }
}
