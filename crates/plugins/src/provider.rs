//! A plugin as the core sees it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use sa_core::{Call, CallError, CallErrorKind, Outcome, Provider, Updates};
use sa_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sa_egress::{Egress, Method, Request};
use sa_protocol::plugin::PluginErrorType;
use serde_json::Value;

use crate::answer;
use crate::errand::{Answer, Errands, Fault};
use crate::openapi::{self, OperationCall, Tokens};
use crate::plugin::{Endpoint, Plugin};
use crate::secrets;
use crate::settings::{Settings, SettingsSchema, SettingsStore, header};

/// What all plugins share.
pub(crate) struct Shared {
    pub(crate) egress: Egress,
    pub(crate) settings: SettingsStore,
    pub(crate) errands: Arc<Errands>,
    pub(crate) rate: Rate,
    pub(crate) tokens: Tokens,
    /// The headers that settings travel in.
    pub(crate) settings_headers: Vec<HeaderName>,
    pub(crate) max_response: usize,
    pub(crate) timeout: Duration,
}

/// How often each principal may call each plugin.
pub(crate) struct Rate {
    limiter: DefaultKeyedRateLimiter<(Arc<str>, Arc<str>)>,
    per_second: NonZeroU32,
}

impl Rate {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        Self { limiter: RateLimiter::keyed(Quota::per_second(per_second)), per_second }
    }

    pub(crate) fn check(&self, principal: &Arc<str>, plugin: &str) -> Result<(), Fault> {
        self.limiter.check_key(&(Arc::clone(principal), plugin.into())).map_err(|_| {
            let message = format!("more than {} calls of the plugin \"{plugin}\" within a second", self.per_second);
            let error = CallError::new(CallErrorKind::Overloaded, message);
            Fault::new(
                PluginErrorType::Status(429),
                error.hint("call it less often, or raise plugins.calls_per_second"),
            )
        })
    }

    /// Forgets who has not called for a while.
    pub(crate) fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

#[derive(Clone)]
pub(crate) struct PluginProvider {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) shared: Arc<Shared>,
}

impl Provider for PluginProvider {
    fn call(&self, call: Arc<Call>, _: Updates) -> BoxFuture<'static, Outcome> {
        let Self { plugin, shared } = self.clone();
        Box::pin(async move {
            let errand = shared.errands.of(call.id);
            let sent_along = errand.as_ref().and_then(|errand| errand.settings.clone());
            match run(&shared, &plugin, &call, sent_along).await {
                Ok((answer, secrets, stored)) => {
                    // What is stored here is nobody's to read. What the host has sent itself, it may get back.
                    let answer = if stored { scrubbed(answer, &secrets) } else { answer };
                    let outcome = answer::outcome(plugin.identifier(), &answer, &secrets);
                    let recorded = outcome.clone().map_err(|fault| fault.error);
                    if let Some(errand) = errand {
                        errand.settle(outcome.map(|_| answer));
                    }
                    recorded
                }
                Err(fault) => {
                    let error = fault.error.clone();
                    if let Some(errand) = errand {
                        errand.settle(Err(fault));
                    }
                    Err(error)
                }
            }
        })
    }
}

/// The answer, the secrets that were sent, and whether these are stored here.
type Ran = (Answer, Vec<String>, bool);

async fn run(shared: &Shared, plugin: &Plugin, call: &Call, sent_along: Option<Settings>) -> Result<Ran, Fault> {
    let function = plugin.by_own_name(&call.tool).ok_or_else(|| {
        let message = format!("the plugin \"{}\" has no such function any more", plugin.identifier());
        Fault::new(PluginErrorType::PluginApiNotFound, CallError::new(CallErrorKind::NotFound, message))
    })?;
    shared.rate.check(&call.principal.id, plugin.identifier())?;
    let (settings, stored) = settings_for(shared, plugin, &call.principal.id, sent_along)?;
    let mut secrets = secrets::secrets(&settings, plugin.settings.as_ref().map(SettingsSchema::value));
    // The router ends the call then, too; ours comes first, and knows the server's name.
    let time = || call.time_left().saturating_sub(Duration::from_millis(20));
    let answer = match &function.endpoint {
        Endpoint::Post(url) => {
            let headers = headers_for(shared, plugin, call, &settings)?;
            let body = Bytes::copy_from_slice(call.args.as_str().as_bytes());
            let (secret, max_bytes) = (!settings.is_empty(), shared.max_response);
            let request =
                Request { method: Method::POST, url: url.clone(), headers, body, secret, time: time(), max_bytes };
            send(shared, plugin, request).await?
        }
        Endpoint::Operation(document, operation) => {
            let arguments = call.args.to_value().map_err(|error| {
                let error =
                    CallError::new(CallErrorKind::InvalidArgs, format!("the arguments cannot be read: {error}"));
                Fault::new(PluginErrorType::PluginApiParamsError, error)
            })?;
            let secret = !settings.is_empty();
            let values = Value::Object(settings);
            let operation = OperationCall { document, operation, arguments: &arguments, settings: &values };
            let mut fresh = false;
            loop {
                let request = operation.request(&shared.egress, &shared.tokens, time(), fresh).await?;
                secrets.extend(secrets::credentials(&request.headers));
                let answer =
                    send(shared, plugin, openapi::outgoing(request, secret, time(), shared.max_response)?).await?;
                // A token that was withdrawn before its time. The server has done nothing, so it may be asked again.
                if answer.status != 401 || fresh || !operation.uses_tokens() {
                    break answer;
                }
                fresh = true;
            }
        }
    };
    Ok((answer, secrets, stored))
}

async fn send(shared: &Shared, plugin: &Plugin, request: Request) -> Result<Answer, Fault> {
    let response =
        shared.egress.send(request).await.map_err(|error| answer::unanswered(plugin.identifier(), &error))?;
    let content_type = response.header(&CONTENT_TYPE).map(str::to_owned);
    Ok(Answer { status: response.status.as_u16(), content_type, body: response.body })
}

fn headers_for(shared: &Shared, plugin: &Plugin, call: &Call, settings: &Settings) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(trace) = HeaderValue::from_str(&call.trace.traceparent()) {
        headers.insert(HeaderName::from_static("traceparent"), trace);
    }
    if !settings.is_empty() {
        let mut value = HeaderValue::from_str(&header(settings)).map_err(|_| {
            invalid(plugin, CallError::new(CallErrorKind::Failed, "the settings cannot be sent as a header"))
        })?;
        value.set_sensitive(true);
        for name in &shared.settings_headers {
            headers.insert(name.clone(), value.clone());
        }
    }
    Ok(headers)
}

/// What the plugin is told of its user: what came with the request, or else what is stored, with defaults.
fn settings_for(
    shared: &Shared,
    plugin: &Plugin,
    owner: &str,
    sent_along: Option<Settings>,
) -> Result<(Settings, bool), Fault> {
    let sent_along = sent_along.filter(|settings| !settings.is_empty());
    let (settings, stored) = match sent_along {
        Some(settings) => (settings, false),
        None if plugin.accepted => match shared.settings.find(plugin.identifier(), owner) {
            Ok(Some(stored)) if plugin.origins.is_subset(&stored.origins) => (stored.settings, true),
            Ok(Some(_)) => {
                let message = "its settings were stored for another server than it has now".to_owned();
                return Err(invalid(plugin, CallError::new(CallErrorKind::Failed, message)));
            }
            Ok(None) => (Settings::new(), false),
            Err(error) => return Err(invalid(plugin, CallError::new(CallErrorKind::Failed, error.to_string()))),
        },
        None => (Settings::new(), false),
    };
    let Some(schema) = &plugin.settings else { return Ok((settings, stored)) };
    let settings = schema.with_defaults(settings);
    schema.check(&settings).map_err(|error| invalid(plugin, error))?;
    Ok((settings, stored))
}

fn invalid(plugin: &Plugin, error: CallError) -> Fault {
    let id = plugin.identifier();
    let message = format!("the settings of the plugin \"{id}\" are not as it needs them: {}", error.message);
    let error = CallError::new(CallErrorKind::Failed, message);
    Fault::new(
        PluginErrorType::PluginSettingsInvalid,
        error.hint(format!("set them: switchboard plugin settings {id} --from FILE")),
    )
}

fn scrubbed(answer: Answer, hidden: &[String]) -> Answer {
    match std::str::from_utf8(&answer.body) {
        Ok(text) if !hidden.is_empty() => Answer { body: secrets::scrub(text, hidden).into(), ..answer },
        _ => answer,
    }
}
