//! The HTTP routes of nodes, and of the hosts that can run tools and skills.

mod connect;
mod eligibility;
mod skills;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRef, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use sa_core::directory::{MemberView, Renamed};
use sa_http::blocks::raw;
use sa_http::provider::provider_event;
use sa_http::{Http, Identity, JSON, Params, Problem, ProviderDoc, SocketRoute, operator_only};
use sa_text::json::to_json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::connect::CONNECT_WITH;

use crate::hosts::Machine;
use crate::{Access, BadFrames, KIND, Nodes};

/// The route for nodes. Their tokens are separate and arrive in the query.
pub const SOCKET: SocketRoute =
    SocketRoute { path: "/v1/nodes/ws", clients: "nodes", allows_pages: false };

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub nodes: Arc<Nodes>,
    pub access: Arc<Access>,
    /// The directories with skills.
    pub skill_dirs: Arc<[PathBuf]>,
}

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(eligibility::probe))
        .routes(routes!(connect::upgrade))
        .routes(routes!(eligibility::answer))
        .routes(routes!(skills::list))
}

/// Returns whether a route needs no token in a header.
pub fn is_open(path: &str) -> bool {
    path == SOCKET.path
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct NodeList<'a> {
    nodes: Vec<NodeDoc<'a>>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct NodeDoc<'a> {
    id: &'a str,
    online: bool,
    /// The time since it connected or disconnected, in milliseconds.
    for_ms: u64,
    /// Whether it disconnected with a normal close, as a stopped node does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    running_calls: usize,
    /// Exposed names of its tools.
    #[schema(value_type = Vec<String>)]
    tools: Vec<&'a str>,
    capabilities: &'a [String],
    /// `execution` if it runs tools without an explicit host, or `specialized`. Absent for a node
    /// that is no host.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Whether bare tool names run here.
    primary: bool,
    /// The capabilities that its tools count for in eligibility checks, such as `shell.exec`.
    host_capabilities: &'a [String],
    /// The operating system, such as `linux`.
    #[serde(rename = "hostOs", skip_serializing_if = "Option::is_none")]
    host_os: Option<String>,
    /// The keys of its environment.
    #[serde(rename = "hostEnv", skip_serializing_if = "Vec::is_empty")]
    host_env: Vec<String>,
    /// Whether each probed program exists.
    #[serde(rename = "hostBinStatus", skip_serializing_if = "BTreeMap::is_empty")]
    host_bin_status: BTreeMap<String, bool>,
    /// The time of the last probe in milliseconds since 1970.
    #[serde(rename = "hostBinStatusUpdatedAt", skip_serializing_if = "Option::is_none")]
    host_bin_status_updated_at: Option<i64>,
    /// Its recent events outside of calls, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    recent_events: Vec<Box<RawValue>>,
    /// The names that it claims without receiving their calls, because another provider holds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked: Vec<Blocked<'a>>,
    /// Its tools that are listed with a suffix, because another tool holds the plain name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    renamed: Vec<RenamedTool<'a>>,
    /// Its tools with an unusable input schema. Every call of such a tool fails.
    ///
    /// The error is found when the node connects, or at the first call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable_schemas: Vec<UnusableSchema<'a>>,
    /// The unreadable frames on this connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_frames: Option<BadFramesDoc>,
    /// The node's description of itself.
    #[schema(value_type = Object)]
    about: Option<Cow<'a, RawValue>>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Blocked<'a> {
    name: &'a str,
    /// The id of the provider that holds it.
    held_by: &'a str,
    /// The kind of that provider: `node`, `plugin`, `upstream` or `sessions`.
    held_by_kind: &'a str,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct UnusableSchema<'a> {
    /// The node's name for the tool.
    tool: &'a str,
    why: &'a str,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct BadFramesDoc {
    count: u64,
    /// The error of the last one.
    last: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct RenamedTool<'a> {
    /// The name with a suffix.
    name: &'a str,
    /// The plain name.
    wanted: &'a str,
    /// The provider that holds the plain name.
    held_by: ProviderDoc<'a>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeQuery {
    /// Only nodes with this tag.
    tag: Option<String>,
}

/// Lists the nodes that are connected, or were recently.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", params(NodeQuery), responses((status = 200, body = NodeList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(Routes { http, nodes, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<NodeQuery>,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let mut members = http.router.directory().members(KIND);
    if let Some(tag) = &query.tag {
        members.retain(|member| has_tag(member, tag));
    }
    let list =
        NodeList { nodes: members.iter().map(|member| NodeDoc::of(&nodes, member)).collect() };
    Ok(([(header::CONTENT_TYPE, JSON)], to_json(&list)).into_response())
}

/// Whether a node has this tag, according to its hello.
fn has_tag(member: &MemberView, tag: &str) -> bool {
    #[derive(Deserialize)]
    struct About<'a> {
        #[serde(borrow)]
        tags: Vec<Cow<'a, str>>,
    }
    let about = serde_json::from_str(member.about.as_str());
    about.is_ok_and(|About { tags }| tags.iter().any(|known| known == tag))
}

impl<'a> NodeDoc<'a> {
    fn of(nodes: &Nodes, member: &'a MemberView) -> Self {
        let machine = Machine::of(member);
        let host = nodes.host(&member.id.id);
        let (host_bin_status, host_bin_status_updated_at) =
            host.as_ref().map(|host| host.bin_status()).unwrap_or_default();
        let bad_frames = host.as_ref().and_then(|host| host.bad_frames());
        let recent = host.map(|host| host.recent_events()).unwrap_or_default();
        Self {
            role: machine.role,
            primary: member.primary,
            host_capabilities: &member.capabilities,
            host_os: machine.os,
            host_env: machine.env,
            host_bin_status,
            host_bin_status_updated_at,
            recent_events: recent
                .iter()
                .filter_map(|event| RawValue::from_string(provider_event(event)).ok())
                .collect(),
            id: &member.id.id,
            online: member.gone_for.is_none(),
            for_ms: member.gone_for.unwrap_or(member.attached_for).as_millis() as u64,
            stopped: member.stopped,
            running_calls: member.running,
            tools: member.tools.iter().map(|name| &**name).collect(),
            capabilities: &member.prefixes,
            blocked: member
                .blocked
                .iter()
                .map(|(name, by)| Blocked { name, held_by: &by.id, held_by_kind: by.kind })
                .collect(),
            renamed: member.renamed.iter().map(RenamedTool::of).collect(),
            unusable_schemas: member
                .flawed
                .iter()
                .map(|(tool, why)| UnusableSchema { tool, why })
                .collect(),
            bad_frames: bad_frames.map(|BadFrames { count, last }| BadFramesDoc { count, last }),
            about: raw(&member.about),
        }
    }
}

impl<'a> RenamedTool<'a> {
    fn of(renamed: &'a Renamed) -> Self {
        let Renamed { name, wanted, held_by, .. } = renamed;
        Self { name, wanted, held_by: ProviderDoc { kind: held_by.kind, id: &held_by.id } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sa_core::directory::Attach;
    use sa_core::{Catalog, Directory, Grant, Notices, ProviderId, RawJson, Scope};

    use super::*;

    struct Nobody;

    impl sa_core::Provider for Nobody {
        fn call(
            &self,
            _: Arc<sa_core::Call>,
            _: sa_core::Updates,
        ) -> futures_util::future::BoxFuture<'static, sa_core::Outcome> {
            Box::pin(std::future::ready(Err(sa_core::CallError::undelivered("nobody is here"))))
        }
    }

    #[track_caller]
    fn check(about: &str, tag: &str, expected: bool) {
        let directory = Directory::new(Notices::new(), Duration::from_secs(600));
        let attach = Attach {
            id: ProviderId::new(KIND, "n"),
            scope: Scope::Everyone,
            grant: Grant::none(),
            provider: Arc::new(Nobody),
            catalog: Catalog::default(),
            max_running: 1,
            about: RawJson::parse(about).unwrap(),
            may_take_over: false,
        };
        let _node = directory.attach(attach).unwrap();
        assert_eq!(has_tag(&directory.members(KIND)[0], tag), expected, "{tag:?}");
    }

    #[test]
    fn a_node_has_the_tags_of_its_hello() {
        let tagged = r#"{ "id": "n", "tags": ["gpu", "to ship", "\u00fc"] }"#;
        for tag in ["gpu", "to ship", "ü"] {
            check(tagged, tag, true);
        }
        for tag in ["gp", "gpux", "GPU", "to", "", "n", "tags"] {
            check(tagged, tag, false);
        }
        for about in ["{}", r#"{ "tags": "gpu" }"#, r#"{ "tags": ["gpu", 1] }"#, "null", "[]"] {
            check(about, "gpu", false);
        }
    }
}
