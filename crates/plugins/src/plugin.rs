//! A plugin that can be called: its manifest, made ready.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sa_core::naming;
use sa_core::{Catalog, Schema, Tool};
use sa_egress::origin;
use serde_json::json;
use url::Url;

use crate::manifest::Manifest;
use crate::settings::SettingsSchema;

pub(crate) struct Plugin {
    pub(crate) manifest: Manifest,
    pub(crate) functions: Vec<Function>,
    pub(crate) settings: Option<SettingsSchema>,
    /// Where its functions are: what settings are stored for.
    pub(crate) origins: BTreeSet<String>,
    /// Whether an operator has accepted it. One that a caller has brought along never sees what is stored.
    pub(crate) accepted: bool,
}

/// A function as the gateway runs it.
pub(crate) struct Function {
    /// The directory's own name for it, without dots: a dotted name would be somebody's prefix.
    pub(crate) own: Arc<str>,
    /// The plugin's name for it.
    pub(crate) name: String,
    wish: String,
    description: Option<String>,
    pub(crate) input: Schema,
    pub(crate) endpoint: Endpoint,
}

/// How a function is called.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// The arguments are posted here as JSON.
    Post(Url),
}

impl Endpoint {
    fn origin(&self) -> String {
        match self {
            Self::Post(url) => origin(url),
        }
    }
}

impl Plugin {
    /// An accepted plugin's tools are `{identifier}__{name}`, those of one that a caller has brought along `inline__` and
    /// the same, so that a token which is for the former is not for the latter.
    pub(crate) fn new(manifest: Manifest, accepted: bool, prefix: &str) -> Self {
        let mut taken = HashSet::new();
        let mut functions = Vec::new();
        for api in &manifest.apis {
            let Some(url) = &api.url else { continue };
            let wish = format!("{prefix}{}__{}", manifest.identifier, api.name);
            let mut own = wish.replace('.', "_");
            if !taken.insert(own.clone()) {
                own = naming::with_hash(&naming::expose(&own, &wish), &wish);
                taken.insert(own.clone());
            }
            functions.push(Function {
                own: own.into(),
                name: api.name.clone(),
                wish,
                description: api.description.clone(),
                input: Schema::new(api.parameters.clone()),
                endpoint: Endpoint::Post(url.clone()),
            });
        }
        let origins = functions.iter().map(|function| function.endpoint.origin()).collect();
        let settings = manifest.settings.clone().map(SettingsSchema::new);
        Self { manifest, functions, settings, origins, accepted }
    }

    pub(crate) fn identifier(&self) -> &str {
        &self.manifest.identifier
    }

    pub(crate) fn by_own_name(&self, own: &str) -> Option<&Function> {
        self.functions.iter().find(|function| &*function.own == own)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    pub(crate) fn catalog(&self, timeout: Duration) -> Catalog {
        let tools = self.functions.iter().map(|function| Tool {
            wish: function.wish.clone(),
            title: self.manifest.meta.title.as_ref().map(|title| format!("{title}: {}", function.name)),
            description: function.description.clone().or_else(|| self.manifest.meta.description.clone()),
            input: Some(function.input.clone()),
            timeout: Some(timeout),
            annotations: Some(sa_core::RawJson::of(&json!({ "openWorldHint": true }))),
            ..Tool::named(&function.own)
        });
        Catalog { tools: tools.collect(), ..Catalog::default() }
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("identifier", &self.identifier()).finish_non_exhaustive()
    }
}
