//! A plugin as a provider of the core.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use sa_core::{Call, CallError, CallErrorKind, Outcome, Output, Provider, Updates};
use sa_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sa_egress::{Egress, Method, Request};
use sa_limits::budget::{Share, SharedBudget};
use sa_limits::offload;
use sa_openapi::Json;
use sa_protocol::plugin::PluginErrorType;
use serde_json::Value;
use tokio::time::Instant;

use crate::answer;
use crate::call_extensions::{Answer, ExtensionsByCall, Fault};
use crate::openapi::{self, OperationCall};
use crate::plugin::{Endpoint, Plugin};
use crate::scrub::Hidden;
use crate::secrets;
use crate::settings::{Settings, SettingsSchema, SettingsStore, header, owner_of};
use crate::tokens::{TokenFetcher, Tokens};

/// The maximum size of all copies of the settings together: common servers accept 16 KB of
/// headers.
const MAX_HEADERS: usize = 14 * 1024;

/// The state that all plugins share.
pub(crate) struct Shared {
    pub(crate) egress: Egress,
    pub(crate) settings: SettingsStore,
    pub(crate) extensions_by_call: Arc<ExtensionsByCall>,
    pub(crate) rate: Rate,
    pub(crate) tokens: Tokens,
    /// The headers that carry settings.
    pub(crate) settings_headers: Vec<HeaderName>,
    pub(crate) max_response: usize,
    /// The budget for answers.
    pub(crate) answers: Arc<SharedBudget>,
    pub(crate) timeout: Duration,
}

/// The rate limit of each principal for each plugin.
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
            let message = format!(
                "the limit is {} calls of the plugin \"{plugin}\" per second",
                self.per_second
            );
            let error = CallError::new(CallErrorKind::Overloaded, message);
            Fault::new(
                PluginErrorType::Status(429),
                error.hint("call it less often, or raise plugins.calls_per_second"),
            )
        })
    }

    /// Removes the state of principals that have made no recent call.
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
            let extensions = shared.extensions_by_call.of(call.id);
            let sent_along = extensions.as_ref().and_then(|extensions| extensions.settings.clone());
            let mut secrets = Vec::new();
            let ran = run(&shared, &plugin, &call, sent_along, &mut secrets).await;
            let hidden = Hidden::new(&secrets);
            let bytes = ran.as_ref().map_or(0, |(answer, _)| answer.body.len());
            let tell = || match ran {
                Ok((answer, stored)) => {
                    let shown = without(&answer, &hidden);
                    let outcome = answer::outcome(plugin.identifier(), &shown);
                    let outcome =
                        outcome.map(|output| Output { held: shown.held.clone(), ..output });
                    let recorded = outcome.clone().map_err(|fault| fault.error);
                    // Stored settings must not be revealed to the host. Settings that the host
                    // itself has sent may be returned to it.
                    let told = if stored { shown } else { answer };
                    (
                        outcome.map(|_| told.clone()).map_err(|fault| in_words_of(&told, fault)),
                        recorded,
                    )
                }
                // External text was masked before it was inserted into the message. Masking the
                // whole message would remove known words, and so reveal the secret.
                Err(fault) => {
                    let error = fault.error.clone();
                    (Err(fault), Err(error))
                }
            };
            let (ended, recorded) = offload::run_queued(bytes, tell).await;
            if let Some(extensions) = extensions {
                extensions.settle(ended);
            }
            recorded
        })
    }
}

/// Calls the function. Returns the answer, and whether stored settings were used. All secrets are
/// added to `secrets` before they are sent.
async fn run(
    shared: &Shared,
    plugin: &Plugin,
    call: &Call,
    sent_along: Option<Settings>,
    secrets: &mut Vec<String>,
) -> Result<(Answer, bool), Fault> {
    let function = plugin.by_own_name(&call.tool).ok_or_else(|| {
        let message = format!("the plugin \"{}\" no longer has this function", plugin.identifier());
        Fault::new(
            PluginErrorType::PluginApiNotFound,
            CallError::new(CallErrorKind::NotFound, message),
        )
    })?;
    shared.rate.check(&call.principal.id, plugin.identifier())?;
    let asker = owner_of(&call.principal);
    let Given { settings, stored, owner } =
        settings_for(shared, plugin, asker, sent_along, secrets)?;
    // The router applies the same deadline; this timeout fires first, and its error names the
    // server.
    let time = || call.time_left().saturating_sub(Duration::from_millis(20));
    let (secret, allowed, max_bytes) =
        (!settings.is_empty(), plugin.allowed.clone(), shared.max_response);
    let answers = shared.answers.share(&call.principal.holder());
    let answer = match &function.endpoint {
        Endpoint::Post(url) => {
            let headers = headers_for(shared, plugin, call, &settings)?;
            let body = Bytes::copy_from_slice(call.args.as_str().as_bytes());
            let request = Request {
                method: Method::POST,
                headers,
                body,
                secret,
                allowed,
                ..Request::get(url.clone(), time(), max_bytes)
            };
            send(shared, plugin, request, answers, secrets).await?
        }
        Endpoint::Operation(document, operation) => {
            let arguments = serde_json::from_str::<Json>(call.args.as_str()).map_err(|error| {
                let error = CallError::new(
                    CallErrorKind::InvalidArgs,
                    format!("the arguments are invalid: {error}"),
                );
                Fault::new(PluginErrorType::PluginApiParamsError, error)
            })?;
            let values = Value::Object(settings);
            let operation =
                OperationCall { document, operation, arguments: &arguments, settings: &values };
            let fetcher = TokenFetcher {
                tokens: &shared.tokens,
                egress: &shared.egress,
                plugin,
                owner: &owner,
            };
            let mut newer_than = None;
            loop {
                let request = operation.request(&fetcher, time(), newer_than, secrets).await;
                let request = request.map_err(|fault| with_hint(plugin, fault))?;
                let asked = Instant::now();
                secrets.extend(secrets::credentials(&request.headers));
                let request =
                    openapi::outgoing(request, secret, allowed.clone(), time(), max_bytes)?;
                let answer = send(shared, plugin, request, answers.clone(), secrets).await?;
                // The token was revoked early. The server has not executed the request, so it can
                // be repeated.
                if answer.status != 401 || newer_than.is_some() || !operation.uses_tokens() {
                    break answer;
                }
                newer_than = Some(asked);
            }
        }
    };
    Ok((answer, stored))
}

/// Returns an answer without secrets, for the record and for display.
fn without(answer: &Answer, hidden: &Hidden) -> Answer {
    let content_type = answer.content_type.as_ref().map(|kind| hidden.text(kind).into_owned());
    let (body, held) = (hidden.body(&answer.body), answer.held.clone());
    Answer { status: answer.status, content_type, body, held }
}

/// Replaces the text of a plugin server's error with that of this answer, for the host.
fn in_words_of(told: &Answer, fault: Fault) -> Fault {
    match (&fault.answer, fault.error_type) {
        (Some(_), _) => Fault { answer: Some(told.clone()), ..fault },
        (None, PluginErrorType::Status(_)) => {
            Fault { body: Value::String(String::from_utf8_lossy(&told.body).into_owned()), ..fault }
        }
        (None, _) => fault,
    }
}

async fn send(
    shared: &Shared,
    plugin: &Plugin,
    request: Request,
    answers: Share,
    secrets: &[String],
) -> Result<Answer, Fault> {
    let request = Request { answers: Some(answers), ..request };
    let sent = shared.egress.send(request).await;
    let response = sent.map_err(|error| answer::unanswered(plugin, error, secrets))?;
    let content_type = response.header(&CONTENT_TYPE).map(str::to_owned);
    let (status, held) = (response.status.as_u16(), response.held);
    Ok(Answer { status, content_type, body: response.body, held })
}

fn headers_for(
    shared: &Shared,
    plugin: &Plugin,
    call: &Call,
    settings: &Settings,
) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(trace) = HeaderValue::from_str(&call.trace.traceparent()) {
        headers.insert(HeaderName::from_static("traceparent"), trace);
    }
    if !settings.is_empty() {
        let mut value = HeaderValue::from_str(&header(settings)).map_err(|_| {
            invalid(
                plugin,
                CallError::new(CallErrorKind::Failed, "the settings cannot be sent as a header"),
            )
        })?;
        value.set_sensitive(true);
        for name in fitting(&shared.settings_headers, value.len()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    Ok(headers)
}

/// Returns the headers that can carry a value of this size, as many as a server accepts.
fn fitting(names: &[HeaderName], bytes: usize) -> &[HeaderName] {
    let most = (MAX_HEADERS / bytes.max(1)).max(1);
    &names[..names.len().min(most)]
}

/// The settings for one call.
struct Given {
    settings: Settings,
    /// Whether they are stored here, and must not be revealed.
    stored: bool,
    /// The owner of the settings.
    owner: Arc<str>,
}

/// Returns the settings of the request, or else the stored ones, with defaults.
fn settings_for(
    shared: &Shared,
    plugin: &Plugin,
    asker: &str,
    sent_along: Option<Settings>,
    secrets: &mut Vec<String>,
) -> Result<Given, Fault> {
    let none = |settings| Given { settings, stored: false, owner: asker.into() };
    let mut given = match sent_along.filter(|settings| !settings.is_empty()) {
        Some(settings) => none(settings),
        None if plugin.accepted => match shared.settings.find(plugin.identifier(), asker) {
            Ok(Some(stored)) if plugin.origins.is_subset(&stored.origins) => {
                Given { settings: stored.settings, stored: true, owner: stored.owner }
            }
            Ok(Some(_)) => {
                let message = "they were stored for another server and must be set again";
                return Err(invalid(plugin, CallError::new(CallErrorKind::Failed, message)));
            }
            Ok(None) => none(Settings::new()),
            Err(error) => {
                return Err(invalid(
                    plugin,
                    CallError::new(CallErrorKind::Failed, error.to_string()),
                ));
            }
        },
        None => none(Settings::new()),
    };
    secrets.extend(secrets::secrets(
        &given.settings,
        plugin.settings.as_ref().map(SettingsSchema::value),
    ));
    let Some(schema) = &plugin.settings else { return Ok(given) };
    given.settings = schema.with_defaults(given.settings);
    schema.check(&given.settings).map_err(|error| invalid(plugin, error))?;
    Ok(given)
}

fn invalid(plugin: &Plugin, error: CallError) -> Fault {
    let id = plugin.identifier();
    let message = format!("the settings of the plugin \"{id}\" are invalid: {}", error.message);
    with_hint(
        plugin,
        Fault::new(
            PluginErrorType::PluginSettingsInvalid,
            CallError::new(CallErrorKind::Failed, message),
        ),
    )
}

/// Adds a hint with the command that sets the missing settings.
fn with_hint(plugin: &Plugin, fault: Fault) -> Fault {
    if fault.error_type != PluginErrorType::PluginSettingsInvalid || fault.error.hint.is_some() {
        return fault;
    }
    let hint = format!("run `switchboard plugin settings {} --from FILE`", plugin.identifier());
    Fault::new(fault.error_type, fault.error.hint(hint))
}

#[cfg(test)]
mod tests {
    use sa_protocol::plugin::SETTINGS_HEADERS;

    use super::*;

    #[test]
    fn settings_go_into_as_many_headers_as_a_server_takes() {
        let names = SETTINGS_HEADERS.map(HeaderName::from_static);
        for (bytes, count) in [(2, 4), (3_584, 4), (3_585, 3), (6 * 1024, 2), (20_000, 1)] {
            assert_eq!(fitting(&names, bytes).len(), count, "{bytes}");
        }
        assert!(fitting(&[], 10).is_empty());
    }
}
