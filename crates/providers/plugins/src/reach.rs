//! Checks whether the servers of plugins are reachable. Without this check, an unreachable server
//! is noticed only at the next call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sa_egress::{EgressErrorKind, Method, Request};
use url::Url;

use crate::Plugins;
use crate::plugin::Plugin;

/// The timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(3);
const AT_ONCE: usize = 16;
/// The maximum size of a response. Any response is sufficient, so no more of it is read.
const ENOUGH: usize = 1_024;

/// An unreachable server of a plugin's functions, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    pub origin: String,
    pub why: String,
}

impl Plugins {
    /// Returns the unreachable servers, by the identifiers of the enabled plugins that need them.
    /// The check is a `HEAD` request for the root path, which has no side effects. Any response
    /// means that the server is reachable.
    pub async fn away(&self) -> BTreeMap<String, Vec<Away>> {
        let places: Vec<(Arc<Plugin>, String)> = {
            let entries = self.entries();
            let enabled =
                entries.values().filter(|entry| entry.record.enabled).map(|entry| &entry.plugin);
            let places = |plugin: &Arc<Plugin>| {
                let plugin = Arc::clone(plugin);
                plugin.origins.clone().into_iter().map(move |origin| (Arc::clone(&plugin), origin))
            };
            enabled.flat_map(places).collect()
        };
        let asked = stream::iter(places).map(|(plugin, origin)| async move {
            let why = self.why_away(&plugin, &origin).await?;
            Some((plugin.identifier().to_owned(), Away { origin, why }))
        });
        let mut away: BTreeMap<String, Vec<Away>> = BTreeMap::new();
        let mut asked = asked.buffered(AT_ONCE);
        while let Some(found) = asked.next().await {
            if let Some((identifier, one)) = found {
                away.entry(identifier).or_default().push(one);
            }
        }
        away
    }

    async fn why_away(&self, plugin: &Plugin, origin: &str) -> Option<String> {
        let url = Url::parse(origin).ok()?;
        if let Err(error) = self.shared.egress.check(&url, &plugin.allowed) {
            return Some(error.message);
        }
        let mut request = Request::get(url, TIMEOUT, ENOUGH);
        request.method = Method::HEAD;
        request.allowed = plugin.allowed.clone();
        let error = self.shared.egress.send(request).await.err()?;
        let away = matches!(
            error.kind,
            EgressErrorKind::Unreachable
                | EgressErrorKind::Unresolved
                | EgressErrorKind::Timeout
                | EgressErrorKind::Broken
        );
        away.then_some(error.message)
    }
}
