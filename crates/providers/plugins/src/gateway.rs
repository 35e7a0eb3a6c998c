//! The plugin gateway: it parses the request, finds the manifest and the function, calls it, and
//! returns the server's answer.
//!
//! The call itself goes through the router like every other, with its policy, schema, limits,
//! deadline and record.

use bytes::Bytes;
use sa_core::{
    CallError, CallErrorKind, CallId, CallRequest, Principal, ProviderId, RawJson, TraceContext,
    View,
};
use sa_egress::Allowed;
use sa_limits::budget::Share;
use sa_protocol::plugin::{PluginErrorType, PluginRequestPayload, plugin_error};
use sa_text::json::{object, shortened, why};
use serde_json::{Value, json};
use url::Url;

use crate::call_extensions::{Answer, CallExtensions, Fault, message};
use crate::plugin::Function;
use crate::settings::parse_header;
use crate::source::Validators;
use crate::transient::Found;
use crate::{KIND, Plugins, manifest, transient};

/// A request from a plugin host.
#[derive(Debug)]
pub struct Asked<'a> {
    pub body: &'a [u8],
    /// The value of its settings header, if it sent one.
    pub settings: Option<&'a [u8]>,
    pub view: View,
    pub trace: TraceContext,
}

/// The response to the host.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
    /// The call's id, if a call was made.
    pub call: Option<CallId>,
}

impl Reply {
    /// Creates an error response in the plugin gateway's form.
    pub fn error(error_type: PluginErrorType, body: &Value) -> Self {
        let content_type = "application/json; charset=utf-8".to_owned();
        Self {
            status: error_type.status(),
            content_type,
            body: plugin_error(error_type, body).into(),
            call: None,
        }
    }
}

/// An error before the call.
type Refusal = (PluginErrorType, Value);

fn refusal(error_type: PluginErrorType, message: impl Into<String>) -> Refusal {
    (error_type, json!({ "message": message.into() }))
}

fn read(body: &[u8]) -> Result<PluginRequestPayload<'_>, Refusal> {
    object(body).map_err(|error| {
        let why = format!(
            "the body must be a JSON object with \"identifier\" and \"apiName\": {}",
            why(&error)
        );
        refusal(PluginErrorType::Status(400), why)
    })
}

impl Plugins {
    /// Runs a function of a plugin for a host.
    pub async fn run(&self, asked: Asked<'_>) -> Reply {
        self.try_run(asked)
            .await
            .unwrap_or_else(|(error_type, body)| Reply::error(error_type, &body))
    }

    async fn try_run(&self, asked: Asked<'_>) -> Result<Reply, Refusal> {
        let payload = read(asked.body)?;
        let settings = asked.settings.map(parse_header).transpose();
        let settings =
            settings.map_err(|why| refusal(PluginErrorType::PluginSettingsInvalid, why))?;
        let refused = |error: CallError| (error_type(&error), message(&error));
        self.router.policy().authorise_role(&asked.view.principal).map_err(refused)?;
        let found = self.find(&payload, &asked.view.principal).await?;
        let own = self.function(&found, &payload.api_name, &asked.view.principal)?;
        let arguments = payload.arguments_text().map_err(|error| why(&error));
        let args = arguments.and_then(|text| RawJson::parse(&text).map_err(|error| why(&error)));
        let args = args.map_err(|error| {
            refusal(
                PluginErrorType::PluginApiParamsError,
                format!("\"arguments\" must be JSON text: {error}"),
            )
        })?;
        let tool = self.router.directory().exposed_name(&found.id, &own).ok_or_else(|| {
            refusal(
                PluginErrorType::PluginGatewayError,
                "the plugin has just been disabled; try again",
            )
        })?;
        let mut view = asked.view;
        view.scopes.extend(found.scope);
        let request = CallRequest {
            tool: tool.to_string(),
            args,
            view,
            surface: "plugin",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: asked.trace,
        };
        let running = self.router.start(request, None);
        let extensions = self
            .shared
            .extensions_by_call
            .enter(running.id(), CallExtensions { settings, ..CallExtensions::default() });
        let finished = running.outcome().await;
        let call = Some(finished.id);
        let reply = match (extensions.end(), finished.outcome) {
            (Some(Ok(answer)), Ok(_)) | (Some(Err(Fault { answer: Some(answer), .. })), Err(_)) => {
                let Answer { status, content_type, body, .. } = answer;
                let content_type =
                    content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into());
                Reply { status, content_type, body, call: None }
            }
            (Some(Err(Fault { error_type, body, .. })), Err(_)) => Reply::error(error_type, &body),
            (_, Err(error)) => Reply::error(error_type(&error), &message(&error)),
            (_, Ok(_)) => Reply::error(
                PluginErrorType::PluginGatewayError,
                &json!({ "message": "the response was lost" }),
            ),
        };
        Ok(Reply { call, ..reply })
    }

    /// Finds the plugin: one that was added, one that the host has sent along, or one from an
    /// index.
    async fn find(
        &self,
        payload: &PluginRequestPayload<'_>,
        asker: &Principal,
    ) -> Result<Found, Refusal> {
        let identifier = payload.identifier.as_str();
        let added = self
            .entries()
            .get(identifier)
            .map(|entry| (entry.plugin.clone(), entry.record.enabled));
        // A plugin without any function for this token is treated as not added.
        let added = added.filter(|(plugin, _)| {
            let mut functions = plugin.functions.iter();
            let id = ProviderId::new(KIND, identifier);
            !asker.is_limited() || functions.any(|function| self.shows(asker, &id, function))
        });
        match added {
            Some((plugin, true)) => {
                return Ok(Found { plugin, id: ProviderId::new(KIND, identifier), scope: None });
            }
            Some((_, false)) => {
                let why = format!("the plugin \"{identifier}\" is disabled");
                return Err(refusal(PluginErrorType::PluginMetaNotFound, why));
            }
            None => {}
        }
        // Other plugins are fetched, so the number of attempts is limited.
        self.shared
            .rate
            .check(&asker.id, "(not installed)")
            .map_err(|fault| (fault.error_type, fault.body))?;
        let answers = self.shared.answers.share(&asker.holder());
        let inline =
            payload.manifest.map(serde_json::value::RawValue::get).filter(|text| *text != "null");
        if let Some(text) = inline.filter(|_| self.options.allow_inline_manifest) {
            let from = format!("inline:{identifier}:{}", blake3::hash(text.as_bytes()));
            if let Some(found) = self.transients.fetched(&from) {
                return Ok(found);
            }
            let found = self.brought(text, None, identifier, &Allowed::default(), &answers).await?;
            self.transients.remember(&from, &found);
            return Ok(found);
        }
        let named = payload.index_url.as_deref().filter(|url| !url.is_empty());
        let indexes: Vec<String> = match named {
            Some(url) if self.options.allow_inline_manifest || self.indexes.has(url) => {
                vec![url.to_owned()]
            }
            _ => self.indexes.urls(),
        };
        let hint = if inline.is_some() || named.is_some() {
            "; a manifest or index from the host is used only if plugins.allow_inline_manifest is set"
        } else {
            ""
        };
        let mut missing = refusal(
            PluginErrorType::PluginMarketIndexNotFound,
            format!(
                "the plugin \"{}\" is not installed, and there is no index to find it in; an operator can run `switchboard plugin add URL`{hint}",
                shortened(identifier)
            ),
        );
        for index in indexes {
            match self.find_in(&index, identifier, &answers).await {
                Ok(found) => return Ok(found),
                Err(why) => missing = why,
            }
        }
        Err(missing)
    }

    async fn find_in(
        &self,
        index: &str,
        identifier: &str,
        answers: &Share,
    ) -> Result<Found, Refusal> {
        let index = Url::parse(index).map_err(|_| {
            refusal(
                PluginErrorType::PluginMarketIndexNotFound,
                "the address of the index is not a valid URL",
            )
        })?;
        let allowed = self.indexes.allowed(index.as_str());
        let found = self.look_up(&index, &allowed, identifier).await;
        let url = found.map_err(|(error_type, why)| refusal(error_type, why))?;
        // Two indexes may name the same manifest, but have different permissions.
        let from = format!("{index} {url}");
        if let Some(found) = self.transients.fetched(&from) {
            return Ok(found);
        }
        let (share, validators) = (Some(answers.clone()), Validators::default());
        let fetched =
            self.fetch_for(share, &url, &allowed, &validators, manifest::MAX_MANIFEST).await;
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                let why = format!("the manifest of \"{identifier}\" cannot be fetched: {error}");
                return Err(refusal(PluginErrorType::PluginManifestNotFound, why));
            }
        };
        let text = fetched.as_ref().map_or("", |fetched| &fetched.text);
        let found = self.brought(text, Some(&url), identifier, &allowed, answers).await?;
        self.transients.remember(&from, &found);
        Ok(found)
    }

    /// Creates a plugin from a manifest (not installed), with its OpenAPI document.
    async fn brought(
        &self,
        text: &str,
        base: Option<&Url>,
        identifier: &str,
        allowed: &Allowed,
        answers: &Share,
    ) -> Result<Found, Refusal> {
        let reading = manifest::read(text, base);
        let errors = reading.errors();
        let manifest = reading.manifest.ok_or_else(|| invalid_manifest(identifier, &errors))?;
        // A manifest that a host sends along is under development, and its identifier often
        // differs.
        if base.is_some() && manifest.identifier != identifier {
            let why = format!(
                "it is the manifest of \"{}\", not of \"{}\"",
                manifest.identifier,
                shortened(identifier)
            );
            return Err(invalid_manifest(identifier, &why));
        }
        let unusable = |why: String| {
            let why = format!("the OpenAPI document of \"{identifier}\" cannot be used: {why}");
            refusal(PluginErrorType::PluginOpenApiInitError, why)
        };
        let source = manifest.openapi.clone();
        let document = match &source {
            Some(url) => {
                let (share, validators) = (Some(answers.clone()), Validators::default());
                let fetched =
                    self.fetch_for(share, url, allowed, &validators, transient::MAX_DOCUMENT).await;
                fetched.map_err(|error| unusable(error.to_string()))?
            }
            None => None,
        };
        let document = source
            .as_ref()
            .map(|url| (document.as_ref().map_or("", |fetched| fetched.text.as_str()), Some(url)));
        self.transient(manifest, document, (base, allowed), text).map_err(unusable)
    }

    /// Returns the directory's own name for the function. A function that the token may not call
    /// is treated as missing.
    fn function(&self, found: &Found, name: &str, asker: &Principal) -> Result<String, Refusal> {
        let identifier = found.plugin.identifier();
        let included = |function: &&Function| self.shows(asker, &found.id, function);
        if let Some(function) = found.plugin.by_name(name).filter(included) {
            return match function.input.check() {
                Ok(()) => Ok(function.own.to_string()),
                Err(why) => Err(invalid_manifest(
                    identifier,
                    &format!("the parameters of \"{name}\": {why}"),
                )),
            };
        }
        let shown: String = name.chars().take(128).collect();
        let on_page = found.plugin.by_name(name).is_none()
            && found.plugin.manifest.apis.iter().any(|api| api.name == name);
        let why = if on_page && asker.includes(&[&format!("{identifier}__{name}")]) {
            format!(
                "\"{shown}\" of the plugin \"{identifier}\" has no server: only the plugin's own page can run it"
            )
        } else {
            let functions = found.plugin.functions.iter().filter(included);
            let names = functions
                .map(|function| format!("\"{}\"", function.name))
                .take(20)
                .collect::<Vec<_>>();
            let has =
                if names.is_empty() { "none for this token".to_owned() } else { names.join(", ") };
            format!(
                "the plugin \"{identifier}\" has no function \"{shown}\"; available functions: {has}"
            )
        };
        Err(refusal(PluginErrorType::PluginApiNotFound, why))
    }

    /// Returns whether a token includes a function, by one of its tool names.
    fn shows(&self, asker: &Principal, id: &ProviderId, function: &Function) -> bool {
        let exposed = self.router.directory().exposed_name(id, &function.own);
        asker.includes(&[&function.own, exposed.as_deref().unwrap_or(&function.own)])
    }
}

fn invalid_manifest(identifier: &str, why: &str) -> Refusal {
    let identifier = shortened(identifier);
    refusal(
        PluginErrorType::PluginManifestInvalid,
        format!("the manifest of \"{identifier}\" cannot be used: {why}"),
    )
}

/// Converts a kind of router error to the plugin gateway's error type.
fn error_type(error: &CallError) -> PluginErrorType {
    match error.kind {
        CallErrorKind::InvalidArgs => PluginErrorType::PluginApiParamsError,
        CallErrorKind::NotFound => PluginErrorType::PluginApiNotFound,
        CallErrorKind::Timeout | CallErrorKind::Offline => PluginErrorType::PluginServerError,
        CallErrorKind::NotAllowed
        | CallErrorKind::Overloaded
        | CallErrorKind::Conflict
        | CallErrorKind::Cancelled
        | CallErrorKind::Store => PluginErrorType::Status(sa_http::status(error)),
        CallErrorKind::Failed => PluginErrorType::PluginGatewayError,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_request_is_an_object_with_what_it_needs(
            text in sa_hostile::nearly(json!({ "identifier": "p", "apiName": "f", "arguments": "{}", "manifest": {} })),
            list in sa_hostile::list(&["p", "f", "{}"]),
        ) {
            prop_assert!(read(list.as_bytes()).is_err());
            match read(text.as_bytes()) {
                Ok(payload) => {
                    let has = ["{", "identifier", "apiName"].iter().all(|part| text.contains(part));
                    prop_assert!(has, "{}", text);
                    let _ = payload.arguments_text();
                }
                Err((kind, said)) => {
                    prop_assert_eq!(kind, PluginErrorType::Status(400));
                    prop_assert!(said.to_string().len() < sa_hostile::SHORT);
                }
            }
        }
    }
}
