//! Plugins over REST: operators manage them, and every user can list them and has separate
//! settings.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::{AuditEvent, Role};
use sa_http::{
    DifferenceDoc, Http, Identity, Params, Payload, Problem, Segment, operator_only, parse,
};
use sa_text::printable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Routes;
use crate::manifest::{Kind, Meta, Problem as Mistake, Ui};
use crate::{Addition, Away, ChangeError, FunctionView, HeldBackView, Plugins, Terms, View};

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PluginSource {
    /// The URL of a manifest or of an index of plugins.
    url: Option<String>,
    /// A manifest or an index, as text.
    text: Option<String>,
    /// A manifest or an index, as JSON.
    manifest: Option<Value>,
    /// Replace an existing plugin with the same identifier.
    #[serde(default)]
    replace: bool,
    /// Servers (`host:port`) with private addresses that only this plugin may be fetched from and
    /// may call. For development.
    #[serde(default)]
    allow_private: Vec<String>,
}

/// A plugin. Fields for operators are left out for other tokens.
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
    /// The JSON Schema of the user settings.
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
    /// The tool's name. Absent for a function that the plugin's page runs, and while the plugin is
    /// disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
}

/// The fields for operators.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Managed {
    /// The URL of the manifest. Absent if the manifest was sent directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The origins of its functions, which receive the settings.
    origins: Vec<String>,
    /// The servers (`host:port`) with private addresses that it may reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_private: Vec<String>,
    added_ms: i64,
    fetched_ms: i64,
    /// The new version at its source that is not accepted yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<HeldBackDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Its unreachable servers, if the request asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    away: Vec<AwayDoc>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct AwayDoc {
    origin: String,
    why: String,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HeldBackDoc {
    at_ms: i64,
    /// The hash to send to accept exactly this change.
    hash: String,
    changes: Vec<DifferenceDoc>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct PluginList {
    plugins: Vec<PluginDoc>,
    /// The indexes that are searched for plugins that were not added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct AddedDoc {
    plugins: Vec<PluginDoc>,
    /// The plugins of an index that could not be added.
    failed: Vec<FailedDoc>,
    /// Problems of the added plugins. An error names the part that was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<AddedProblem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct AddedProblem {
    identifier: String,
    /// `severity`, `line`, `path` and `message`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    problem: Mistake,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct FailedDoc {
    identifier: String,
    error: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct CheckDoc {
    /// Whether the plugin could be added.
    usable: bool,
    /// `severity`, `line`, `path` and `message`, ordered by line.
    #[schema(value_type = Vec<Object>)]
    problems: Vec<Mistake>,
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptBody {
    /// The `hash` of the reviewed change. A newer change is then not accepted.
    hash: Option<String>,
}

impl PluginDoc {
    /// Returns the view of a plugin for a token.
    ///
    /// An operator sees everything. Other tokens see only the functions that they may call, and no
    /// plugin without such a function.
    fn of(view: View, identity: &Identity) -> Option<Self> {
        let principal = &identity.principal;
        let operator = principal.role == Role::Operator;
        let shown: Vec<ApiDoc> = view
            .functions
            .iter()
            .filter(|function| operator || may_call(&view, function, identity))
            .map(|function| ApiDoc {
                name: function.name.clone(),
                description: function.description.clone(),
                parameters: function.parameters.to_value().unwrap_or_default(),
                tool: function.tool.clone(),
            })
            .collect();
        let restricted = principal.is_limited();
        let callable =
            principal.role.may_call_tools() && (!restricted || (view.enabled && !shown.is_empty()));
        (operator || callable).then(|| Self::with(view, shown, identity))
    }

    fn with(view: View, api: Vec<ApiDoc>, identity: &Identity) -> Self {
        let View { manifest, enabled, settings, held_back, .. } = view;
        let held_back = held_back.map(|HeldBackView { at_ms, hash, changes }| HeldBackDoc {
            at_ms,
            hash,
            changes: changes.into_iter().map(DifferenceDoc::from).collect(),
        });
        let View { source, origins, allow_private, added_ms, fetched_ms, last_error, .. } = view;
        let away = Vec::new();
        let managed = Managed {
            source,
            origins,
            allow_private,
            added_ms,
            fetched_ms,
            held_back,
            last_error,
            away,
        };
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

/// Whether a token includes a function.
///
/// A function that the plugin's page runs is no tool. It is checked by the name that the tool would
/// have.
fn may_call(view: &View, function: &FunctionView, identity: &Identity) -> bool {
    let name = match &function.tool {
        Some(tool) => tool.clone(),
        None => format!("{}__{}", view.manifest.identifier, function.name),
    };
    identity.principal.includes(&[&name])
}

/// Returns a plugin as this token sees it. A plugin without a callable function is reported as
/// unknown.
pub(super) fn visible(
    plugins: &Plugins,
    identity: &Identity,
    id: &str,
) -> Result<PluginDoc, Problem> {
    let doc = PluginDoc::of(plugins.show(id)?, identity);
    doc.ok_or_else(|| ChangeError::Unknown(id.to_owned()).into())
}

fn addition(source: PluginSource) -> Result<(Addition, Terms), Problem> {
    let terms = Terms { replace: source.replace, allow_private: source.allow_private };
    let addition = match (source.url, source.text, source.manifest) {
        (Some(url), None, None) => match url::Url::parse(&url) {
            Ok(url) => Ok(Addition::Url(url)),
            Err(error) => Err(Problem::bad_request(format!("\"url\" is not a valid URL: {error}"))),
        },
        (None, Some(text), None) => Ok(Addition::Text(text)),
        (None, None, Some(manifest)) => Ok(Addition::Text(format!("{manifest:#}"))),
        _ => Err(Problem::bad_request(
            "the request body needs exactly one of \"url\", \"text\" and \"manifest\"",
        )),
    };
    Ok((addition?, terms))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Check whether the plugins' servers are reachable, and list the unreachable ones as `away`.
    /// For operators only.
    #[serde(default)]
    reach: bool,
}

/// Lists the plugins with functions that the token may call, by identifier.
#[utoipa::path(get, path = "/v1/plugins", tag = "plugins", params(ListQuery), responses((status = 200, body = PluginList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<ListQuery>,
) -> Result<Json<PluginList>, Problem> {
    let mut away = if query.reach {
        operator_only(&identity)?;
        plugins.away().await
    } else {
        BTreeMap::new()
    };
    let mut list: Vec<PluginDoc> =
        plugins.list().into_iter().filter_map(|view| PluginDoc::of(view, &identity)).collect();
    for plugin in &mut list {
        if let (Some(managed), Some(away)) = (&mut plugin.managed, away.remove(&plugin.identifier))
        {
            managed.away =
                away.into_iter().map(|Away { origin, why }| AwayDoc { origin, why }).collect();
        }
    }
    let operator = identity.principal.role == Role::Operator;
    Ok(Json(PluginList {
        plugins: list,
        indexes: if operator { plugins.indexes() } else { Vec::new() },
    }))
}

/// Shows one plugin.
#[utoipa::path(get, path = "/v1/plugins/{id}", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    visible(&plugins, &identity, &id).map(Json)
}

/// Adds a plugin, or every plugin of an index.
#[utoipa::path(post, path = "/v1/plugins", tag = "plugins", request_body = PluginSource,
    responses((status = 201, body = AddedDoc), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn add(
    State(Routes { http, plugins }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let (source, terms) = addition(parse(&body)?)?;
    let added = plugins.add(source, &terms).await?;
    for view in &added.plugins {
        audit(&http, &identity, "plugin.added", view);
        if !view.allow_private.is_empty() {
            let detail = format!("it may reach {}", view.allow_private.join(", "));
            let event =
                event(&identity, "plugin.private_allowed", view, printable(&detail).into_owned());
            http.journal.audit(event);
        }
    }
    if let Some(index) = &added.index {
        index_audit(&http, &identity, "plugin.index_added", index, &terms.allow_private);
    }
    let failed = added.failed.into_iter();
    let failed = failed
        .map(|(identifier, error)| FailedDoc { identifier, error: printable(&error).into_owned() });
    let plugins =
        added.plugins.into_iter().filter_map(|view| PluginDoc::of(view, &identity)).collect();
    let problems = added
        .problems
        .into_iter()
        .map(|(identifier, problem)| AddedProblem { identifier, problem });
    let doc = AddedDoc {
        plugins,
        failed: failed.collect(),
        problems: problems.collect(),
        index: added.index,
    };
    Ok((StatusCode::CREATED, Json(doc)).into_response())
}

/// Checks a manifest line by line without adding it.
#[utoipa::path(post, path = "/v1/plugins/check", tag = "plugins", request_body = PluginSource,
    responses((status = 200, body = CheckDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn check(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Json<CheckDoc>, Problem> {
    operator_only(&identity)?;
    let (source, terms) = addition(parse(&body)?)?;
    let (usable, problems) = plugins.check(source, &terms).await?;
    Ok(Json(CheckDoc { usable, problems }))
}

/// Removes a plugin with all its settings, or an index by its URL.
#[utoipa::path(delete, path = "/v1/plugins/{id}", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier, or the address of an index")),
    responses((status = 204), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn remove(
    State(Routes { http, plugins }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    operator_only(&identity)?;
    if id.contains("://") && plugins.remove_index(&id).await? {
        index_audit(&http, &identity, "plugin.index_removed", &id, &[]);
        return Ok(StatusCode::NO_CONTENT);
    }
    let view = plugins.remove(&id).await?;
    audit(&http, &identity, "plugin.removed", &view);
    Ok(StatusCode::NO_CONTENT)
}

/// Enables a plugin's functions.
#[utoipa::path(post, path = "/v1/plugins/{id}/enable", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn enable(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = routes.plugins.set_enabled(&id, true).await?;
    changed(&routes, &identity, "plugin.enabled", &view)
}

/// Disables a plugin's functions without removing the plugin.
#[utoipa::path(post, path = "/v1/plugins/{id}/disable", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn disable(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = routes.plugins.set_enabled(&id, false).await?;
    changed(&routes, &identity, "plugin.disabled", &view)
}

/// Checks a plugin's source now. A change is held back until it is accepted.
#[utoipa::path(post, path = "/v1/plugins/{id}/refresh", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn refresh(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    plugins.refresh(&id).await?;
    visible(&plugins, &identity, &id).map(Json)
}

/// Accepts the change that is held back.
#[utoipa::path(post, path = "/v1/plugins/{id}/accept", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    request_body = AcceptBody,
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn accept(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Payload(body): Payload,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let seen: AcceptBody = if body.is_empty() { AcceptBody::default() } else { parse(&body)? };
    let view = routes.plugins.accept(&id, seen.hash.as_deref()).await?;
    changed(&routes, &identity, "plugin.accepted", &view)
}

/// Refuses the change that is held back. It is not shown again.
#[utoipa::path(post, path = "/v1/plugins/{id}/refuse", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier")),
    responses((status = 200, body = PluginDoc), (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn refuse(
    State(routes): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
) -> Result<Json<PluginDoc>, Problem> {
    operator_only(&identity)?;
    let view = routes.plugins.refuse(&id).await?;
    changed(&routes, &identity, "plugin.refused", &view)
}

fn changed(
    Routes { http, plugins }: &Routes,
    by: &Identity,
    what: &'static str,
    view: &View,
) -> Result<Json<PluginDoc>, Problem> {
    audit(http, by, what, view);
    visible(plugins, by, &view.manifest.identifier).map(Json)
}

fn audit(http: &Http, by: &Identity, what: &'static str, view: &View) {
    let detail = view.source.clone().unwrap_or_else(|| "a manifest in the request".into());
    http.journal.audit(event(by, what, view, detail));
}

fn index_audit(http: &Http, by: &Identity, what: &'static str, url: &str, allowed: &[String]) {
    let who = format!("{} {}", by.principal.role, by.principal.name);
    let detail = if allowed.is_empty() {
        String::new()
    } else {
        format!("it may reach {}", allowed.join(", "))
    };
    http.journal.audit(AuditEvent { name: what, actor: who, subject: url.to_owned(), detail });
}

fn event(by: &Identity, what: &'static str, view: &View, detail: String) -> AuditEvent {
    let who = format!("{} {}", by.principal.role, by.principal.name);
    AuditEvent { name: what, actor: who, subject: view.manifest.identifier.clone(), detail }
}
