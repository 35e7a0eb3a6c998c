//! Plugins over REST: operators manage them, everyone sees what there is and has settings of their own.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::{AuditEvent, Journal as _, Role};
use sa_plugins::manifest::{Kind, Meta, Problem as Mistake, Ui};
use sa_plugins::settings::{SHARED, SettingsError};
use sa_plugins::{Addition, Change, ChangeError, HeldBackView, SettingsView, View};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::body::Payload;
use super::front::operator_only;
use super::tools::parse;
use super::{App, Problem, Segment};
use crate::redact::printable;
use crate::tokens::Identity;

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PluginSource {
    /// The address of a manifest, or of an index of plugins.
    url: Option<String>,
    /// A manifest, or an index, as text.
    text: Option<String>,
    /// The same as JSON.
    manifest: Option<Value>,
    /// Accept it in place of the plugin that has its identifier already.
    #[serde(default)]
    replace: bool,
}

/// A plugin. What is for operators is left out for others.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PluginDoc {
    identifier: String,
    #[schema(value_type = Object)]
    meta: Meta,
    /// `default`, `markdown` or `standalone`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Kind,
    enabled: bool,
    /// The plugin's own page: `url`, `height`, `width`, `mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    ui: Option<Ui>,
    api: Vec<ApiDoc>,
    /// JSON Schema of what its users can set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    settings: Option<Value>,
    #[serde(flatten)]
    managed: Option<Managed>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ApiDoc {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[schema(value_type = Object)]
    parameters: Value,
    /// The tool's name; absent for a function that the plugin's page runs, and while the plugin is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
}

/// For operators.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Managed {
    /// The manifest's address; absent for one that was handed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Where its functions are, which is where settings are sent.
    origins: Vec<String>,
    added_ms: i64,
    fetched_ms: i64,
    /// What its source has now and nobody has accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<HeldBackDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HeldBackDoc {
    at_ms: i64,
    /// To accept this, and nothing that came after it.
    hash: String,
    #[schema(value_type = Vec<Object>)]
    changes: Vec<Change>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct PluginList {
    plugins: Vec<PluginDoc>,
    /// The indexes that are looked into for plugins that were not added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct AddedDoc {
    plugins: Vec<PluginDoc>,
    /// Of an index, those that could not be added.
    failed: Vec<FailedDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct FailedDoc {
    identifier: String,
    error: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct CheckDoc {
    /// Whether it could be added.
    usable: bool,
    /// `severity`, `line`, `path` and `message`, in the order of their lines.
    #[schema(value_type = Vec<Object>)]
    problems: Vec<Mistake>,
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptBody {
    /// The `hash` of the change that was seen; a newer one is then not accepted.
    hash: Option<String>,
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsBody {
    /// All of them; `"***"` stands for a value that is stored.
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
}

/// Somebody's settings, without their secrets.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SettingsDoc {
    identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// Absent when nothing is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    settings: Option<Value>,
    /// Why a call would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsQuery {
    /// The settings for everyone who has none of their own; operators set them.
    #[serde(default)]
    shared: bool,
}

impl PluginDoc {
    fn of(view: View, identity: &Identity) -> Self {
        let View {
            manifest,
            enabled,
            source,
            added_ms,
            fetched_ms,
            origins,
            functions,
            settings,
            held_back,
            last_error,
        } = view;
        let mut api: Vec<ApiDoc> = functions
            .into_iter()
            .map(|function| ApiDoc {
                name: function.name,
                description: function.description,
                parameters: function.parameters.to_value().unwrap_or_default(),
                tool: function.tool,
            })
            .collect();
        api.retain(|api| {
            api.tool.as_ref().is_none_or(|name| {
                let allowed = &identity.principal.tools;
                allowed.is_empty() || allowed.iter().any(|pattern| pattern.matches(name))
            })
        });
        let held_back = held_back.map(|HeldBackView { at_ms, hash, changes }| HeldBackDoc { at_ms, hash, changes });
        let managed = Managed { source, origins, added_ms, fetched_ms, held_back, last_error };
        Self {
            identifier: manifest.identifier,
            meta: manifest.meta,
            kind: manifest.kind,
            enabled,
            ui: manifest.ui,
            api,
            settings,
            managed: (identity.principal.role == Role::Operator).then_some(managed),
        }
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = printable(&error.to_string()).into_owned();
        match error {
            ChangeError::Invalid(_) => {
                Self::bad_request(detail).hint("see what is wrong with: switchboard plugin check")
            }
            ChangeError::NoSource(_) | ChangeError::Full => Self::bad_request(detail),
            ChangeError::Exists(_) => Self::new(409, "conflict", detail).hint("remove it first, or add --replace"),
            ChangeError::NothingHeldBack(_) | ChangeError::Moved(_) => Self::new(409, "conflict", detail),
            ChangeError::Unknown(_) => Self::new(404, "not_found", detail).hint("switchboard plugin list shows all"),
            ChangeError::Fetch(_) => Self::new(502, "failed", detail).hint(
                "is the address right? for a server on a private network, add its host:port to plugins.allow_private",
            ),
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Invalid(why) => Self::new(422, "invalid_args", printable(&why).into_owned())
                .hint("the plugin's \"settings\" in GET /v1/plugins say what it takes"),
            SettingsError::Vault(error) => Self::new(503, "store", printable(&error.to_string()).into_owned()),
            SettingsError::Store(error) => error.into(),
        }
    }
}

fn addition(source: PluginSource) -> Result<Addition, Problem> {
    match (source.url, source.text, source.manifest) {
        (Some(url), None, None) => match url::Url::parse(&url) {
            Ok(url) => Ok(Addition::Url(url)),
            Err(error) => Err(Problem::bad_request(format!("\"url\" is no URL: {error}"))),
        },
        (None, Some(text), None) => Ok(Addition::Text(text)),
        (None, None, Some(manifest)) => Ok(Addition::Text(format!("{manifest:#}"))),
        _ => Err(Problem::bad_request("it needs a \"url\", a \"text\" or a \"manifest\", and only one of them")),
    }
}

/// Every plugin, by its identifier.
#[utoipa::path(get, path = "/v1/plugins", tag = "plugins", responses((status = 200, body = PluginList)))]
pub(crate) async fn list(State(app): State<App>, Extension(identity): Extension<Identity>) -> Json<PluginList> {
    let restricted = !identity.principal.tools.is_empty();
    let plugins = app.plugins.list().into_iter().map(|view| PluginDoc::of(view, &identity));
    let plugins = plugins.filter(|plugin| !restricted || !plugin.api.is_empty()).collect();
    let operator = identity.principal.role == Role::Operator;
    Json(PluginList { plugins, indexes: if operator { app.plugins.indexes() } else { Vec::new() } })
}

/// One plugin.
#[utoipa::path(get, path = "/v1/plugins/{id}", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    Ok(Json(PluginDoc::of(app.plugins.show(&id)?, &identity)))
}

/// Adds a plugin, or every plugin of an index.
#[utoipa::path(post, path = "/v1/plugins", tag = "plugins", request_body = PluginSource,
    responses((status = 201, body = AddedDoc), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn add(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let source: PluginSource = parse(&body)?;
    let replace = source.replace;
    let added = app.plugins.add(addition(source)?, replace).await?;
    for view in &added.plugins {
        audit(&app, &identity, "plugin.added", view);
    }
    let failed = added.failed.into_iter();
    let failed = failed.map(|(identifier, error)| FailedDoc { identifier, error: printable(&error).into_owned() });
    let plugins = added.plugins.into_iter().map(|view| PluginDoc::of(view, &identity)).collect();
    let doc = AddedDoc { plugins, failed: failed.collect(), index: added.index };
    Ok((StatusCode::CREATED, Json(doc)).into_response())
}

/// Says what is wrong with a manifest, line by line, without adding it.
#[utoipa::path(post, path = "/v1/plugins/check", tag = "plugins", request_body = PluginSource,
    responses((status = 200, body = CheckDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn check(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Json<CheckDoc>, Problem> {
    operator_only(&identity)?;
    let (usable, problems) = app.plugins.check(addition(parse(&body)?)?).await?;
    Ok(Json(CheckDoc { usable, problems }))
}

/// Removes a plugin with everything that was set for it, or, by its address, an index.
#[utoipa::path(delete, path = "/v1/plugins/{id}", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier, or the address of an index")),
    responses((status = 204), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    operator_only(&identity)?;
    if id.contains("://") && app.plugins.remove_index(&id).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let view = app.plugins.remove(&id).await?;
    audit(&app, &identity, "plugin.removed", &view);
    Ok(StatusCode::NO_CONTENT)
}

/// Offers a plugin's functions again.
#[utoipa::path(post, path = "/v1/plugins/{id}/enable", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn enable(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.plugins.set_enabled(&id, true).await?;
    Ok(changed(&app, &identity, "plugin.enabled", view))
}

/// Keeps a plugin, and offers nothing of it.
#[utoipa::path(post, path = "/v1/plugins/{id}/disable", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn disable(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.plugins.set_enabled(&id, false).await?;
    Ok(changed(&app, &identity, "plugin.disabled", view))
}

/// Looks at a plugin's source now. A change there is held back.
#[utoipa::path(post, path = "/v1/plugins/{id}/refresh", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn refresh(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    Ok(Json(PluginDoc::of(app.plugins.refresh(&id).await?, &identity)))
}

/// Accepts the change that is held back.
#[utoipa::path(post, path = "/v1/plugins/{id}/accept", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    request_body = AcceptBody,
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn accept(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Payload(body): Payload,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let seen: AcceptBody = if body.is_empty() { AcceptBody::default() } else { parse(&body)? };
    let view = app.plugins.accept(&id, seen.hash.as_deref()).await?;
    Ok(changed(&app, &identity, "plugin.accepted", view))
}

/// Refuses the change that is held back; it is not shown again.
#[utoipa::path(post, path = "/v1/plugins/{id}/refuse", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn refuse(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = app.plugins.refuse(&id).await?;
    Ok(changed(&app, &identity, "plugin.refused", view))
}

/// What the token's user has set, without secrets.
#[utoipa::path(get, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    responses((status = 200, body = SettingsDoc), (status = 404, body = Problem)))]
pub(crate) async fn settings(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Query(query): Query<SettingsQuery>,
) -> Result<Json<SettingsDoc>, Problem> {
    let view = app.plugins.settings(&id, owner(&identity, &query)?)?;
    Ok(Json(settings_doc(id, view)))
}

/// Stores what the token's user sets, in place of what they had set before.
#[utoipa::path(put, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    request_body = SettingsBody,
    responses((status = 200, body = SettingsDoc), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn store_settings(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Query(query): Query<SettingsQuery>,
    Payload(body): Payload,
) -> Result<Json<SettingsDoc>, Problem> {
    let owner = owner(&identity, &query)?;
    app.plugins.show(&id)?;
    // What cannot be read is not quoted: it may be a secret.
    let unreadable = |_| Problem::bad_request("the body must be of the form { \"settings\": { … } }");
    let body: SettingsBody = serde_json::from_slice(&body).map_err(unreadable)?;
    let view = app.plugins.store_settings(&id, owner, body.settings).await?;
    Ok(Json(settings_doc(id, view)))
}

/// Deletes what the token's user has set.
#[utoipa::path(delete, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn delete_settings(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Query(query): Query<SettingsQuery>,
) -> Result<StatusCode, Problem> {
    let owner = owner(&identity, &query)?;
    app.plugins.delete_settings(&id, owner).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whose settings are meant.
fn owner<'a>(identity: &'a Identity, query: &SettingsQuery) -> Result<&'a str, Problem> {
    if query.shared {
        operator_only(identity)?;
        return Ok(SHARED);
    }
    if !identity.principal.role.may_call_tools() {
        let detail = format!("a {} token calls no plugins, and has no settings", identity.principal.role);
        return Err(Problem::new(403, "not_allowed", detail));
    }
    Ok(&identity.principal.id)
}

fn settings_doc(identifier: String, view: SettingsView) -> SettingsDoc {
    let SettingsView { schema, settings, problem } = view;
    SettingsDoc { identifier, schema, settings, problem }
}

fn changed(app: &App, by: &Identity, what: &'static str, view: View) -> Json<PluginDoc> {
    audit(app, by, what, &view);
    Json(PluginDoc::of(view, by))
}

fn audit(app: &App, by: &Identity, what: &'static str, view: &View) {
    app.journal.audit(AuditEvent {
        what,
        who: format!("{} {}", by.principal.role, by.principal.name),
        subject: view.manifest.identifier.clone(),
        detail: view.source.clone().unwrap_or_else(|| "a manifest that was handed over".into()),
    });
}
