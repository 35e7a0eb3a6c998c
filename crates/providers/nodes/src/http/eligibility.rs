//! Host eligibility: the programs on each host, and the requirements that it meets.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::{Extension, Json};
use sa_core::View;
use sa_http::{Identity, Payload, Problem, Segment, operator_only, parse};
use sa_text::printable;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Routes;
use crate::hosts::{Facts, Requirements, facts};
use crate::{KIND, ProbeError};

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeBody {
    /// Names of programs without directories, 64 at most.
    bins: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Probed {
    node: String,
    /// Whether each program exists and can be run.
    #[serde(rename = "hostBinStatus")]
    host_bin_status: BTreeMap<String, bool>,
    /// The time of the node's answer in milliseconds since 1970.
    #[serde(rename = "hostBinStatusUpdatedAt")]
    host_bin_status_updated_at: Option<i64>,
}

/// Asks a node which programs its machine has. For operators only.
#[utoipa::path(post, path = "/v1/nodes/{id}/probe", tag = "nodes", request_body = ProbeBody,
    params(("id" = String, Path, description = "The node's id")),
    responses((status = 200, body = Probed), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 503, body = Problem), (status = 504, body = Problem)))]
pub(crate) async fn probe(
    State(Routes { http, nodes, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(node): Segment,
    Payload(body): Payload,
) -> Result<Json<Probed>, Problem> {
    operator_only(&identity)?;
    let body: ProbeBody =
        parse(&body).map_err(|problem| problem.hint("send a body such as {\"bins\":[\"git\"]}"))?;
    let Some(host) = nodes.host(&node) else {
        let known =
            http.router.directory().members(KIND).iter().any(|member| *member.id.id == *node);
        let name = printable(&node);
        return Err(if known {
            Problem::new(503, "offline", format!("the node \"{name}\" is not connected"))
                .retryable()
        } else {
            Problem::new(404, "not_found", format!("there is no node \"{name}\""))
                .hint("`GET /v1/nodes` lists them")
        });
    };
    // The cache is skipped, because this route must return the current state.
    let host_bin_status = host
        .probe(&body.bins, Some(Instant::now()))
        .await
        .map_err(|error| refused(&node, &error))?;
    Ok(Json(Probed { node, host_bin_status, host_bin_status_updated_at: host.bin_status().1 }))
}

fn refused(node: &str, error: &ProbeError) -> Problem {
    let detail = format!("the node \"{}\" cannot be probed: {error}", printable(node));
    match error {
        ProbeError::Count(_) | ProbeError::Name(_) => Problem::bad_request(error.to_string()),
        ProbeError::Unsupported => Problem::new(409, "unsupported", detail).hint(
            "the node does not list the feature bin_probe; in the SDK, use NodeClientBuilder::bin_probe",
        ),
        ProbeError::Busy => Problem::new(429, "overloaded", detail).retryable(),
        ProbeError::Timeout => Problem::new(504, "timeout", detail).retryable(),
        ProbeError::Gone => Problem::new(503, "offline", detail).retryable(),
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Eligibility {
    /// The hosts that qualify, the primary execution host first.
    eligible: Vec<Eligible>,
    hosts: Vec<Judged>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Eligible {
    node: String,
    primary: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Judged {
    node: String,
    eligible: bool,
    missing: Missing,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    online: bool,
    /// Why the host's programs are unknown. They then count as missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The requirements that a host does not meet. For `any_bins` and `os`, one entry would be enough.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Missing {
    capabilities: Vec<String>,
    bins: Vec<String>,
    any_bins: Vec<String>,
    env: Vec<String>,
    os: Vec<String>,
}

/// Lists the hosts that meet the requirements, and the missing ones of each other host.
///
/// Programs that were not probed in the last minute are probed again.
#[utoipa::path(post, path = "/v1/eligibility", tag = "nodes", request_body = Option<Requirements>,
    responses((status = 200, body = Eligibility), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub(crate) async fn answer(
    State(Routes { http, nodes, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Json<Eligibility>, Problem> {
    http.router
        .policy()
        .authorise_role(&identity.principal)
        .map_err(|error| Problem::from(&error))?;
    let required: Requirements =
        if body.is_empty() { Requirements::default() } else { read(&body)? };
    required.check().map_err(Problem::bad_request)?;
    let view = View::of(identity.principal);
    let hosts = facts(&nodes, &view, required.programs().cloned().collect()).await;
    Ok(Json(Eligibility::of(hosts, &required)))
}

fn read(body: &[u8]) -> Result<Requirements, Problem> {
    let hint = "the body can contain \"capabilities\", \"bins\", \"any_bins\", \"env\" and \"os\", each a list of \
                words";
    parse(body).map_err(|problem| problem.hint(hint))
}

impl Eligibility {
    fn of(hosts: Vec<Facts>, required: &Requirements) -> Self {
        let mut eligible = Vec::new();
        let hosts = hosts.into_iter().map(|host| {
            let lacking = host.lacks(required);
            let qualifies = host.online && lacking == Requirements::default();
            if qualifies {
                eligible.push(Eligible { node: host.node.clone(), primary: host.primary });
            }
            let Requirements { capabilities, bins, any_bins, env, os } = lacking;
            Judged {
                node: host.node,
                eligible: qualifies,
                missing: Missing { capabilities, bins, any_bins, env, os },
                role: host.role,
                online: host.online,
                problem: host.problem,
            }
        });
        let hosts = hosts.collect();
        eligible.sort_by_key(|host| !host.primary);
        Self { eligible, hosts }
    }
}
