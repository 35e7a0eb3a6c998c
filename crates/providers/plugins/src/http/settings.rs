//! The users' plugin settings over REST.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use sa_http::{Identity, Params, Payload, Problem, Segment, operator_only};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Routes;
use super::registry::visible;
use crate::SettingsView;
use crate::settings::{SHARED, owner_of};

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsBody {
    /// All settings. `"***"` keeps a stored value, and a secret that is left out is also kept.
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
}

/// The settings of a user, without secrets.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SettingsDoc {
    identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// Absent if nothing is stored.
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
    /// Use the settings for all users without their own. Only operators can set them.
    #[serde(default)]
    shared: bool,
}

/// Shows the settings of the token's user, without secrets.
#[utoipa::path(get, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    responses((status = 200, body = SettingsDoc), (status = 404, body = Problem)))]
pub(crate) async fn settings(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Params(query): Params<SettingsQuery>,
) -> Result<Json<SettingsDoc>, Problem> {
    let owner = owner(&identity, &query)?;
    visible(&plugins, &identity, &id)?;
    let view = plugins.settings(&id, owner)?;
    Ok(Json(settings_doc(id, view)))
}

/// Stores the settings of the token's user, and replaces the earlier ones.
#[utoipa::path(put, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    request_body = SettingsBody,
    responses((status = 200, body = SettingsDoc), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(crate) async fn store_settings(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Params(query): Params<SettingsQuery>,
    Payload(body): Payload,
) -> Result<Json<SettingsDoc>, Problem> {
    let owner = owner(&identity, &query)?;
    visible(&plugins, &identity, &id)?;
    // An unreadable body is not quoted, because it may contain a secret.
    let unreadable =
        |_| Problem::bad_request("the request body must have the form { \"settings\": { … } }");
    let body: SettingsBody = serde_json::from_slice(&body).map_err(unreadable)?;
    let view = plugins.store_settings(&id, owner, body.settings).await?;
    Ok(Json(settings_doc(id, view)))
}

/// Deletes the settings of the token's user.
#[utoipa::path(delete, path = "/v1/plugins/{id}/settings", tag = "plugins", params(("id" = String, Path, description = "The plugin's identifier"), SettingsQuery),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn delete_settings(
    State(Routes { plugins, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Params(query): Params<SettingsQuery>,
) -> Result<StatusCode, Problem> {
    let owner = owner(&identity, &query)?;
    visible(&plugins, &identity, &id)?;
    plugins.delete_settings(&id, owner).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the owner of the requested settings.
fn owner<'a>(identity: &'a Identity, query: &SettingsQuery) -> Result<&'a str, Problem> {
    if query.shared {
        operator_only(identity)?;
        return Ok(SHARED);
    }
    if !identity.principal.role.may_call_tools() {
        let detail =
            format!("a {} token cannot call plugins and has no settings", identity.principal.role);
        return Err(Problem::new(403, "not_allowed", detail));
    }
    Ok(owner_of(&identity.principal))
}

fn settings_doc(identifier: String, view: SettingsView) -> SettingsDoc {
    let SettingsView { schema, settings, problem } = view;
    SettingsDoc { identifier, schema, settings, problem }
}
