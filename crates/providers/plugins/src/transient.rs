//! Plugins that nobody has added: a host has brought the manifest along, or an index has it. Each is a provider in a scope
//! of its own, which only the call that it is for can see, so that its calls go the way of all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sa_core::{ProviderId, Registration, Scope};
use sa_egress::Allowed;
use tokio::time::Instant;
use url::Url;

use crate::manifest::Manifest;
use crate::plugin::{DocumentText, Plugin};
use crate::{KIND, Plugins};

const MAX_TRANSIENTS: usize = 64;
/// For how long one is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(600);
/// For how long a manifest from an index is used without looking at it again.
const FRESH: Duration = Duration::from_secs(60);

/// A plugin, and where the directory has it.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) id: ProviderId,
    /// Absent for one that everyone sees.
    pub(crate) scope: Option<Scope>,
}

#[derive(Default)]
pub(crate) struct Transients {
    known: Mutex<HashMap<String, Transient>>,
    /// By the address that an index led to, or by what a host has brought along.
    fetched: Mutex<HashMap<String, (Instant, Found)>>,
}

struct Transient {
    found: Found,
    registration: Registration,
    used: Instant,
}

impl Transients {
    pub(crate) fn sweep(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let idle: Vec<String> =
            known.iter().filter(|(_, one)| one.used.elapsed() > IDLE).map(|(key, _)| key.clone()).collect();
        for key in idle {
            if let Some(one) = known.remove(&key) {
                one.registration.withdraw();
            }
        }
        drop(known);
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (at, _)| at.elapsed() < FRESH);
    }

    /// One that was made ready a moment ago.
    pub(crate) fn fetched(&self, from: &str) -> Option<Found> {
        let fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fetched.get(from).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, found)| found.clone());
        let key = found.as_ref()?.scope.as_ref();
        // It may have made room for others meanwhile.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let there = known.values().any(|one| one.found.scope.as_ref() == key);
        found.filter(|_| there)
    }

    pub(crate) fn remember(&self, from: &str, found: &Found) {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if fetched.len() >= MAX_TRANSIENTS {
            fetched.clear();
        }
        fetched.insert(from.to_owned(), (Instant::now(), found.clone()));
    }
}

impl Plugins {
    /// A provider for a manifest that nobody has added. One from a caller is named apart from those that were.
    pub(crate) fn transient(
        &self,
        manifest: Manifest,
        document: Option<DocumentText<'_>>,
        (base, allowed): (Option<&Url>, &Allowed),
        text: &str,
    ) -> Result<Found, String> {
        let place = base.map_or("inline", Url::as_str);
        let document_text = document.map_or("", |(text, _)| text);
        let key =
            blake3::hash(format!("{place}\n{allowed:?}\n{text}\n{document_text}").as_bytes()).to_hex().to_string();
        let mut known = self.transients.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.get_mut(&key) {
            one.used = Instant::now();
            return Ok(one.found.clone());
        }
        let prefix = if base.is_none() { "inline__" } else { "" };
        let plugin = Arc::new(Plugin::new(manifest, document, false, prefix)?.allowed(allowed.clone()));
        let id = ProviderId::new(KIND, &format!("{}#{}", plugin.identifier(), &key[..8]));
        let scope = Scope::User(format!("plugin:{key}").into());
        let found = Found { plugin: Arc::clone(&plugin), id: id.clone(), scope: Some(scope.clone()) };
        let registration = self.attach(id, scope, &plugin).ok_or("it cannot be offered")?;
        if known.len() >= MAX_TRANSIENTS
            && let Some(oldest) = known.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| key.clone())
            && let Some(one) = known.remove(&oldest)
        {
            one.registration.withdraw();
        }
        known.insert(key, Transient { found: found.clone(), registration, used: Instant::now() });
        Ok(found)
    }
}
