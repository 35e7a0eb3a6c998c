//! A callable plugin, built from its manifest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sa_core::naming;
use sa_core::{Catalog, RawJson, Schema, Tool};
use sa_egress::{Allowed, origin};
use sa_http::annotations::is_repeatable;
use sa_openapi::{Document, Operation};
use serde_json::{Value, json};
use url::Url;

use crate::manifest::Manifest;
use crate::openapi;
use crate::settings::SettingsSchema;

pub(crate) struct Plugin {
    pub(crate) manifest: Manifest,
    pub(crate) functions: Vec<Function>,
    pub(crate) settings: Option<SettingsSchema>,
    /// The origins of its functions. Settings are stored for these origins.
    pub(crate) origins: BTreeSet<String>,
    /// Whether an operator has accepted it. A plugin that a caller has sent along never receives
    /// stored settings.
    pub(crate) accepted: bool,
    /// The private addresses that it may reach, and be fetched from.
    pub(crate) allowed: Allowed,
}

/// A function as the gateway runs it.
pub(crate) struct Function {
    /// The directory's own name for it, without dots: a dotted name would claim a namespace.
    pub(crate) own: Arc<str>,
    /// The plugin's name for it.
    pub(crate) name: String,
    exposed: String,
    pub(crate) description: Option<String>,
    pub(crate) input: Schema,
    annotations: RawJson,
    pub(crate) endpoint: Endpoint,
}

/// How a function is called.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// The arguments are posted to this URL as JSON.
    Post(Url),
    /// The arguments form a request that the document describes.
    Operation(Document, String),
}

/// An OpenAPI document's text, and its URL.
pub(crate) type DocumentText<'a> = (&'a str, Option<&'a Url>);

impl Plugin {
    /// Builds a plugin. An accepted plugin's tools are named `{identifier}__{name}`. For a plugin
    /// that a caller has sent along, the prefix `inline__` is added. So a token for the former
    /// does not include the latter.
    pub(crate) fn new(
        manifest: Manifest,
        document: Option<DocumentText<'_>>,
        accepted: bool,
        prefix: &str,
    ) -> Result<Self, String> {
        let document = document.map(|(text, source)| openapi::read(text, source)).transpose()?;
        let (functions, origins, allowed) = (Vec::new(), BTreeSet::new(), Allowed::default());
        let mut plugin = Self { manifest, functions, settings: None, origins, accepted, allowed };
        let settings = match &document {
            Some(document) => openapi::settings_schema(plugin.manifest.settings.as_ref(), document),
            None => plugin.manifest.settings.clone(),
        };
        plugin.settings = settings.map(SettingsSchema::new);
        for api in plugin.manifest.apis.clone() {
            let operation = document
                .as_ref()
                .and_then(|document| Some((document, document.operation(&api.name)?)));
            match (operation, api.url) {
                (Some((document, operation)), _) => {
                    plugin.operation(document, operation, api.description, prefix);
                }
                (None, Some(url)) => {
                    plugin.origins.insert(origin(&url));
                    let annotations = json!({ "openWorldHint": true });
                    let input = Schema::with_formats(api.parameters);
                    plugin.function(
                        prefix,
                        api.name,
                        api.description,
                        input,
                        annotations,
                        Endpoint::Post(url),
                    );
                }
                (None, None) => {}
            }
        }
        if let Some(document) = document.as_ref().filter(|_| plugin.manifest.apis.is_empty()) {
            for operation in document.operations() {
                plugin.operation(document, operation, None, prefix);
            }
        }
        Ok(plugin)
    }

    fn operation(
        &mut self,
        document: &Document,
        operation: &Operation,
        described: Option<String>,
        prefix: &str,
    ) {
        let hints = operation.hints();
        let annotations = json!({
            "openWorldHint": true, "readOnlyHint": hints.read_only, "idempotentHint": hints.idempotent,
            "destructiveHint": hints.destructive,
        });
        let Ok(input) = RawJson::parse(operation.input_schema()) else { return };
        let description = described
            .or_else(|| Some(operation.description().to_owned()))
            .filter(|text| !text.is_empty());
        self.origins.extend(openapi::origins(document, operation));
        let name = operation.name().to_owned();
        let endpoint = Endpoint::Operation(document.clone(), name.clone());
        self.function(
            prefix,
            name,
            description,
            Schema::with_formats(input),
            annotations,
            endpoint,
        );
    }

    fn function(
        &mut self,
        prefix: &str,
        name: String,
        description: Option<String>,
        input: Schema,
        annotations: Value,
        endpoint: Endpoint,
    ) {
        let exposed = format!("{prefix}{}__{name}", self.manifest.identifier);
        let mut own = exposed.replace('.', "_");
        if self.functions.iter().any(|function| *function.own == own) {
            own = naming::with_hash(&naming::expose(&own, &exposed), &exposed);
        }
        self.functions.push(Function {
            own: own.into(),
            name,
            exposed,
            description,
            input,
            annotations: RawJson::of(&annotations),
            endpoint,
        });
    }

    /// Sets the private addresses that the operator allows.
    pub(crate) fn allowed(self, allowed: Allowed) -> Self {
        Self { allowed, ..self }
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
            preferred_name: function.exposed.clone(),
            title: self
                .manifest
                .meta
                .title
                .as_ref()
                .map(|title| format!("{title}: {}", function.name)),
            description: function
                .description
                .clone()
                .or_else(|| self.manifest.meta.description.clone()),
            input: Some(function.input.clone()),
            timeout: Some(timeout),
            repeatable: is_repeatable(Some(&function.annotations)),
            annotations: Some(function.annotations.clone()),
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
