//! The socket that nodes connect to.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use sa_core::{Grant, Role};
use sa_http::auth::{bearer, same_secret, unauthorized};
use sa_http::connection::settle;
use sa_http::{Ends, Identity, Problem, Refused, query};
use sa_socket::{NoUpgrade, SocketLimits, Upgrade};
use tokio_util::sync::CancellationToken;

use super::Routes;
use crate::access::{bound_grant, shared_grant};
use crate::{Access, Admission};

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
    let Routes { nodes, access, .. } = routes;
    let holder = admission.holder();
    let budget = Some(nodes.messages.share(&holder));
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
    let (host, _) = sa_text::split_port(host);
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
