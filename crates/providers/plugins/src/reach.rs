//! Whether the servers of plugins are there. Nobody hears of one that is not before somebody calls it, unless they ask here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sa_egress::{EgressErrorKind, Method, Request};
use url::Url;

use crate::Plugins;
use crate::plugin::Plugin;

/// How long a server may take to say anything.
const PATIENCE: Duration = Duration::from_secs(3);
const AT_ONCE: usize = 16;
/// Whatever it says will do, so no more of it is read.
const ENOUGH: usize = 1_024;

/// A server that a plugin's functions are at, and why it cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    pub origin: String,
    pub why: String,
}

impl Plugins {
    /// The servers that are away, by the identifiers of the plugins that are enabled and need them. A server is asked for
    /// the head of its first page, which changes nothing there, and any answer means that it is there.
    pub async fn away(&self) -> BTreeMap<String, Vec<Away>> {
        let places: Vec<(Arc<Plugin>, String)> = {
            let entries = self.entries();
            let enabled = entries.values().filter(|entry| entry.record.enabled).map(|entry| &entry.plugin);
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
        let mut request = Request::get(url, PATIENCE, ENOUGH);
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
