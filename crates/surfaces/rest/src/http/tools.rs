//! The list of tools.

use std::borrow::Cow;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use sa_core::directory::ToolView;
use sa_core::{Passthrough, Scope};
use sa_http::blocks::raw;
use sa_http::{Http, Identity, JSON, MCP, Params, Problem, ProviderDoc, no_such_scope};
use sa_limits::offload;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;
/// The maximum size of a page in bytes. The tool that exceeds it is the last one of the page.
const MAX_PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// The position of the page: the `next_cursor` of an earlier response.
    cursor: Option<String>,
    /// The number of tools per page, 1,000 at most; fewer if they are large.
    limit: Option<usize>,
    /// Also list the caller's tools of this session, which must belong to the token.
    session: Option<String>,
    /// Also list the methods of this channel's participants.
    channel: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ToolList<'a> {
    tools: Vec<ToolDoc<'a>>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ToolDoc<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Cow<'a, RawValue>>,
    /// Why the input schema cannot be used: every call fails until the tool's author has fixed it.
    /// Or why the output schema is not used. As far as that has shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_problem: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    annotations: Option<Cow<'a, RawValue>>,
    /// Additional metadata of an upstream MCP server, such as the app that shows the tool's
    /// results.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Cow<'a, RawValue>>,
    provider: ProviderDoc<'a>,
    online: bool,
}

/// Fields of a provider's tool that the gateway passes on unchanged.
#[derive(Deserialize)]
struct OtherFields<'a> {
    #[serde(rename = "_meta", borrow)]
    meta: Option<&'a RawValue>,
}

/// Lists the tools that the token may use, sorted by name.
#[utoipa::path(get, path = "/v1/tools", tag = "tools", params(ListQuery),
    responses((status = 200, body = ToolList), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn list(
    State(http): State<Http>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<ListQuery>,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let channel = query.channel.as_deref();
    let view = http.view_in(&identity, query.session.as_deref(), channel);
    let view = view.ok_or_else(|| Problem::not_in_channel(channel.unwrap_or_default()))?;
    let session = query.session.map(|id| Scope::Session(id.into()));
    if let Some(session) = session.filter(|session| !view.scopes.contains(session)) {
        return Err(no_such_scope(&session));
    }
    let policy = http.router.policy();
    let allowed = |tool: &ToolView| policy.allows(&view.principal, tool);
    let page = http
        .router
        .directory()
        .list(&view, query.cursor.as_deref(), limit, allowed)
        .within(MAX_PAGE_BYTES);
    let written = || {
        let list = ToolList {
            tools: page.tools.iter().map(ToolDoc::of).collect(),
            next_cursor: page.next.clone(),
        };
        sa_text::json::to_json(&list)
    };
    let list = offload::run_queued(page.weight(), written).await;
    Ok(([(header::CONTENT_TYPE, JSON)], list).into_response())
}

impl<'a> ToolDoc<'a> {
    fn of(view: &'a ToolView) -> Self {
        let tool = &view.tool;
        Self {
            name: &view.name,
            title: tool.title.as_deref(),
            description: tool.description.as_deref(),
            input_schema: tool.input.as_ref().and_then(|schema| raw(schema.raw())),
            schema_problem: tool.schema_problem(),
            output_schema: tool.output.as_ref().and_then(|schema| raw(schema.raw())),
            annotations: tool.annotations.as_ref().and_then(raw),
            meta: tool.passthrough.as_ref().and_then(meta),
            provider: ProviderDoc { kind: view.provider.kind, id: &view.provider.id },
            online: view.online,
        }
    }
}

fn meta(passthrough: &Passthrough) -> Option<Cow<'_, RawValue>> {
    let fields = passthrough.in_format(MCP)?;
    serde_json::from_str::<OtherFields<'_>>(fields.as_str()).ok()?.meta.map(Cow::Borrowed)
}
