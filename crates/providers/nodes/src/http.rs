//! The HTTP routes of nodes, and of the hosts that can run tools and skills.

mod eligibility;
mod skills;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRef, Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Response};
use sa_core::directory::{MemberView, Renamed};
use sa_core::{Grant, Role};
use sa_http::auth::{bearer, same_secret, unauthorized};
use sa_http::blocks::raw;
use sa_http::connection::{settle, split_port};
use sa_http::provider::provider_event;
use sa_http::{
    Ends, Http, Identity, JSON, Params, Problem, ProviderDoc, Refused, SocketRoute, operator_only,
    query,
};
use sa_limits::budget::SharedBudget;
use sa_socket::{NoUpgrade, SocketLimits, Upgrade};
use sa_text::json::to_json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{bound_grant, shared_grant};
use crate::hosts::Machine;
use crate::{Access, Admission, BadFrames, KIND, Nodes};

/// The route for nodes. Their tokens are separate and arrive in the query.
pub const SOCKET: SocketRoute =
    SocketRoute { path: "/v1/nodes/ws", clients: "nodes", allows_pages: false };

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub nodes: Arc<Nodes>,
    pub access: Arc<Access>,
    /// The budget of messages that are not complete yet.
    pub messages: Arc<SharedBudget>,
    /// The directories with skills.
    pub skill_dirs: Arc<[PathBuf]>,
}

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(eligibility::probe))
        .routes(routes!(upgrade))
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

/// Opens a WebSocket for the node protocol.
#[utoipa::path(get, path = "/v1/nodes/ws", tag = "nodes",
    params(("token" = Option<String>, Query, description = "The node's token"), ("node_id" = Option<String>, Query, description = "The node's id")),
    responses((status = 101, description = "Switching to WebSocket"), (status = 401, body = Problem), (status = 426, body = Problem, description = "The request does not ask for a WebSocket")))]
pub(crate) async fn upgrade(
    State(routes): State<Routes>,
    Extension(ends): Extension<Ends>,
    upgrade: Result<Upgrade, NoUpgrade>,
    request: Request,
) -> Result<Response, Problem> {
    let (admission, identity) = admit(&routes, &request, ends).inspect_err(|problem| {
        routes.http.journal.count("node", "token");
        tracing::warn!(remote = %ends.remote, reason = problem.detail(), "refused a node's connection");
    })?;
    let upgrade = upgrade?;
    let Routes { nodes, access, messages, .. } = routes;
    let holder = admission.holder();
    let budget = Some(messages.share(&holder));
    let limits =
        SocketLimits { max_message_bytes: nodes.options.max_frame_bytes, cuts: true, budget };
    settle(request.extensions(), || holder)?;
    Ok(upgrade.serve(limits, move |socket| async move {
        let (revoked, suspended) = (admission.revoked.clone(), admission.suspended.clone());
        let mut serve = Box::pin(nodes.serve(socket, admission));
        // Runs in a separate task. The upgrade task is larger, because it has space for the whole
        // upgrade.
        match identity {
            None => tokio::spawn(serve),
            Some(identity) => tokio::spawn(async move {
                tokio::select! {
                    () = &mut serve => return,
                    () = identity.over() => {
                        if is_over(&access, &identity) {
                            revoked.cancel();
                        }
                        suspended.cancel();
                    }
                }
                serve.await;
            }),
        };
    }))
}

/// Decides by the token whether a node may connect, and with which permissions.
///
/// Also returns the identity of a stored token, because such a token can expire or be revoked.
fn admit(
    Routes { http, access, .. }: &Routes,
    request: &Request,
    ends: Ends,
) -> Result<(Admission, Option<Identity>), Problem> {
    let presented = tokens_of(request.uri(), request.headers())?;
    let refuse = |refused: Refused| {
        http.token_refused(refused, ends, request.uri().path());
        node_refused(refused)
    };
    let tokens = &access.configured;
    let admission = |grant: Grant, bound_id| Admission {
        grant,
        bound_id,
        remote: ends.remote.to_string(),
        revoked: CancellationToken::new(),
        suspended: CancellationToken::new(),
    };
    for token in &presented {
        let matching = |secret: &String| same_secret(secret, token);
        if let Some((id, _)) = tokens.bound.iter().find(|(_, secret)| matching(secret)) {
            return Ok((admission(bound_grant(id), Some(id.as_str().into())), None));
        }
        if tokens.shared.as_ref().is_some_and(matching) {
            return Ok((admission(shared_grant(), None), None));
        }
        match http.auth.authenticate(token) {
            Ok(identity) if identity.principal.role == Role::Node => {
                let grant = Grant::stored_token(&identity.principal.id);
                return Ok((admission(grant, identity.node_id.clone()), Some(identity)));
            }
            Ok(identity) => {
                let why = format!(
                    "a node needs a token with the role node; this token's role is {}",
                    identity.principal.role
                );
                http.token_refused_because(&why, ends, request.uri().path());
                return Err(Problem::new(401, "unauthorized", why)
                    .hint("run `switchboard token create NAME --role node`"));
            }
            Err(refused @ (Refused::Revoked | Refused::Expired)) => return Err(refuse(refused)),
            Err(_) => {}
        }
    }
    if access.admits_anyone()
        && ends.remote.ip().to_canonical().is_loopback()
        && !is_forwarded(request.headers())
    {
        return Ok((admission(Grant::none(), None), None));
    }
    let tried = !presented.is_empty() || request.headers().contains_key(header::AUTHORIZATION);
    Err(refuse(if tried { Refused::Unknown } else { Refused::Missing }))
}

/// Returns whether a proxy on this machine may forward the request for a client on another one. A
/// direct client names a local address as its host, and has no headers of a proxy.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let by_proxy = |name: &str| {
        matches!(name, "forwarded" | "via" | "x-real-ip")
            || ["x-forwarded", "client-ip", "connecting-ip", "forwarded-for", "external-address"]
                .iter()
                .any(|part| name.contains(part))
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (host, _) = split_port(host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_local = address
        .map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.to_canonical().is_loopback());
    !is_local || headers.keys().any(|name| by_proxy(name.as_str()))
}

/// Returns whether a connected node can never connect with its token again.
fn is_over(access: &Access, identity: &Identity) -> bool {
    identity.revoked.is_cancelled() || access.stored.has_expired(identity.expires_ms)
}

/// The hint for authors of nodes that send no valid token.
pub const CONNECT_WITH: &str = "connect with ?token=TOKEN";

fn node_refused(refused: Refused) -> Problem {
    unauthorized(refused).hint(format!(
        "{CONNECT_WITH}; use the token in SA_NODE_TOKEN, or create one with: \
         `switchboard token create NAME --role node`"
    ))
}

/// Returns the token in the query, or else in the header.
///
/// Some nodes do not percent-encode their token, and the plain token may look encoded. Both
/// readings are therefore tried.
fn tokens_of(uri: &Uri, headers: &HeaderMap) -> Result<Vec<String>, Problem> {
    let mut tokens = Vec::new();
    if let Some(raw) = query::only(uri, "token")? {
        tokens.extend(query::decoded(uri, "token").ok().flatten().map(Cow::into_owned));
        tokens.push(raw.to_owned());
    } else {
        tokens.extend(bearer(headers).ok().map(str::to_owned));
    }
    tokens.retain(|token| !token.is_empty());
    tokens.dedup();
    Ok(tokens)
}

#[cfg(test)]
mod tests;
