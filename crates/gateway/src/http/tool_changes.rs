//! Changes of tool definitions, and their acceptance by an operator.

use axum::extract::State;
use axum::{Extension, Json};
use sa_core::directory::{AcceptError, ToolChange};
use sa_core::{AuditEvent, Journal as _};
use serde::{Deserialize, Serialize};

use super::App;
use crate::config::settings::OnChange;
use sa_http::DifferenceDoc;
use sa_http::Identity;
use sa_http::Payload;
use sa_http::Problem;
use sa_http::operator_only;
use sa_http::parse;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ToolChangeList {
    /// The reaction to a changed definition: the configuration key `trust.on_change`.
    on_change: OnChange,
    changes: Vec<ToolChangeDoc>,
}

/// A tool with a definition that has changed since an operator accepted it, or since it was first
/// listed.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ToolChangeDoc {
    provider: ChangedProvider,
    /// The provider's own name for the tool.
    tool: String,
    /// The name under which it is listed; absent while it is not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    at_ms: i64,
    /// The revision to send to accept exactly this change.
    revision: i64,
    /// Whether calls of the tool fail until the change is accepted.
    held: bool,
    differences: Vec<DifferenceDoc>,
    /// The number of invisible characters that were removed from its texts.
    invisible_characters: usize,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangedProvider {
    kind: String,
    id: String,
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accept {
    provider: ChangedProvider,
    /// The provider's own name for the tool.
    tool: String,
    /// Accept only the change with this revision.
    revision: Option<i64>,
}

/// Lists the tools with changed definitions that no operator has accepted yet.
#[utoipa::path(get, path = "/v1/tool-changes", operation_id = "list_changes", tag = "tools",
    responses((status = 200, body = ToolChangeList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<ToolChangeList>, Problem> {
    operator_only(&identity)?;
    let changes = app.router.directory().tool_changes().into_iter().map(|change| {
        let ToolChange { kind, id, tool, name, at_ms, revision, held, changes, invisible } = change;
        ToolChangeDoc {
            name: name.map(|name| name.to_string()),
            provider: ChangedProvider { kind, id },
            tool: tool.to_string(),
            at_ms,
            revision,
            held,
            differences: changes.into_iter().map(DifferenceDoc::from).collect(),
            invisible_characters: invisible,
        }
    });
    Ok(Json(ToolChangeList {
        on_change: app.config.settings.trust.on_change,
        changes: changes.collect(),
    }))
}

/// Accepts the change of a tool's definition.
#[utoipa::path(post, path = "/v1/tool-changes/accept", tag = "tools", request_body = Accept,
    responses((status = 204), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem, description = "The tool has no change to accept"),
        (status = 409, body = Problem, description = "The tool has changed again"),
        (status = 503, body = Problem, description = "Accepted, but not stored yet; a restart loses it")))]
pub(crate) async fn accept(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<axum::http::StatusCode, Problem> {
    operator_only(&identity)?;
    let accept: Accept = parse(&body)?;
    let Accept { provider: ChangedProvider { kind, id }, tool, revision } = accept;
    app.router.directory().accept_change(&kind, &id, &tool, revision).map_err(
        |error| match error {
            AcceptError::Nothing => Problem::new(404, "not_found", error.to_string()),
            AcceptError::Newer => Problem::new(409, "conflict", error.to_string()),
        },
    )?;
    app.journal.audit(AuditEvent {
        name: "definition.accepted",
        actor: format!("{} {}", identity.principal.role, identity.principal.name),
        subject: tool,
        detail: format!("of the {kind} \"{id}\""),
    });
    app.definitions.save().await?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}
