//! Tokens over REST, for operators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::call::CancelReason;
use sa_core::{AuditEvent, Grant, Journal as _, Role, clock};
use serde::{Deserialize, Serialize};

use super::App;
use crate::assemble::check_node_id;
use crate::tokens::{CreateError, MAX_LIFE_S, MODEL_TOOL, NewToken, NotRevoked, TokenRecord};
use sa_http::Payload;
use sa_http::operator_only;
use sa_http::parse;
use sa_http::{ChannelGrant, Identity};
use sa_http::{Params, Problem, Segment};

const MAX_NAME: usize = 128;

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateToken {
    /// The name of the person or program that uses the token.
    name: String,
    /// `operator`, `agent`, `caller`, `node`, `participant`, `user` or `monitor` (reads `/metrics`
    /// only).
    role: String,
    /// The tools that the token may use. `*` matches any characters.
    ///
    /// A token that names tools, channels or models may use only these. A token that names none of
    /// them may use everything, but a `participant` only channels.
    #[serde(default)]
    tools: Vec<String>,
    /// The only node id that a node's token may use.
    node_id: Option<String>,
    /// The channels that the token may use. `*` matches any characters.
    ///
    /// If a channel is named without `*`, its methods are among the token's tools.
    #[serde(default)]
    channels: Vec<String>,
    /// The models that the token may use. `*` matches any characters.
    #[serde(default)]
    models: Vec<String>,
    /// The rights in channels: `read`, `publish`, `call`, `admin` (delete channels). If empty, all
    /// except `admin`.
    #[serde(default)]
    channel_rights: Vec<String>,
    /// The lifetime in seconds, up to a hundred years. If absent, the token does not expire.
    expires_in_s: Option<u64>,
}

/// A token as operators see it. The secret itself is returned only when the token is created.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TokenDoc {
    id: String,
    name: String,
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    created_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_ms: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    channels: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    channel_rights: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    /// Other effects of creating or revoking the token, or its restrictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

/// The things that a limited token may not use, each with the flag that allows them.
const NOT_NAMED: [(&str, &str); 3] =
    [("no tools of the gateway", "--tool"), ("no channels", "--channel"), ("no models", "--model")];

/// Returns a note on the things that a limited token may not use at all.
fn not_named(record: &TokenRecord, role: Role) -> Option<String> {
    let named =
        [&record.tools, &record.channels.channels, &record.models].map(|list| !list.is_empty());
    let narrowed = named.contains(&true);
    let participant = role == Role::Participant;
    // A participant that names nothing may use every channel, and nothing else.
    let missing = [
        !named[0] && (narrowed || participant),
        !named[1] && narrowed,
        !named[2] && (narrowed || participant),
    ];
    let missing =
        NOT_NAMED.iter().zip(missing).filter(|(_, missing)| *missing).map(|(words, _)| words);
    let (may, flags): (Vec<&str>, Vec<&str>) = missing.copied().unzip();
    let told = role != Role::Operator && role.may_call_tools() && !may.is_empty();
    told.then(|| {
        format!(
            "the token may use {}; to allow some, name them with {}",
            listed(&may),
            listed(&flags)
        )
    })
}

/// Joins the items of a list with commas and a final "and".
fn listed(items: &[&str]) -> String {
    match items {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => items.concat(),
    }
}

/// The notice for the first node token, because it also affects other nodes.
const NODES_NEED_TOKENS: &str = "this is the first node token: from now on, nodes without a token are refused when \
they connect";

/// The notice for revoking the last node token. Revoking it must not let nodes connect without a
/// token.
const NODES_STAY_OUT: &str = "this was the last valid node token: nodes without a token are still refused; to allow \
nodes again, run `switchboard token create NAME --role node`";

/// The error for revoking the last operator token.
const LAST_OPERATOR: &str = "this is the last valid operator token: without it, the gateway cannot be managed until \
a restart writes a new token to operator.token in the data directory";

/// The hint for revoking it anyway.
const EVEN_SO: &str =
    "create another one first; to revoke this one anyway, use DELETE with ?last_operator=true";

impl TokenDoc {
    fn of(record: TokenRecord, token: Option<String>) -> Self {
        let TokenRecord {
            id,
            name,
            role,
            created_ms,
            expires_ms,
            revoked_ms,
            tools,
            models,
            node_id,
            channels,
            ..
        } = record;
        let ChannelGrant { channels, channel_rights } = channels;
        let notice = None;
        Self {
            id,
            name,
            role,
            token,
            created_ms,
            expires_ms,
            revoked_ms,
            tools,
            node_id,
            channels,
            channel_rights,
            models,
            notice,
        }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct TokenList {
    tokens: Vec<TokenDoc>,
}

/// Lists all tokens, oldest first, including revoked ones.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", responses((status = 200, body = TokenList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<TokenList>, Problem> {
    operator_only(&identity)?;
    let tokens = app.tokens.list().into_iter().map(|record| TokenDoc::of(record, None)).collect();
    Ok(Json(TokenList { tokens }))
}

/// Creates a token. Its secret is returned only in this response.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = CreateToken,
    responses((status = 201, body = TokenDoc), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem, description = "The name is already used in channels")))]
pub(crate) async fn create(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let new: CreateToken =
        parse(&body).map_err(|problem| problem.hint("a token needs a \"name\" and a \"role\""))?;
    let role = Role::parse(&new.role).ok_or_else(|| {
        let roles: Vec<_> = Role::ALL.iter().map(|role| role.as_str()).collect();
        Problem::bad_request(format!("unknown role \"{}\"", sa_text::printable(&new.role)))
            .hint(format!("use one of {}", roles.join(", ")))
    })?;
    if new.name.len() > MAX_NAME {
        return Err(Problem::bad_request(format!(
            "name has more than {MAX_NAME} bytes; shorten it"
        )));
    }
    sa_protocol::validate_name(&new.name)
        .map_err(|error| Problem::bad_request(format!("name: {error}")))?;
    if new.node_id.is_some() && role != Role::Node {
        return Err(Problem::bad_request("node_id is only for tokens with the role \"node\""));
    }
    if let Some(id) = &new.node_id {
        check_node_id(id).map_err(|why| Problem::bad_request(format!("node_id: {why}")))?;
    }
    // A restriction without effect would mislead the operator.
    let calls = !matches!(role, Role::Node | Role::Monitor);
    for (given, what) in [
        (!new.tools.is_empty(), "tools is"),
        (!new.channels.is_empty(), "channels is"),
        (!new.channel_rights.is_empty(), "channel_rights is"),
        (!new.models.is_empty(), "models is"),
    ] {
        if given && !calls {
            let detail = format!(
                "{what} not for tokens with the role \"{}\", which call no tools and join no channels",
                role.as_str()
            );
            return Err(Problem::bad_request(detail));
        }
    }
    if new.expires_in_s.is_some_and(|seconds| !(1..=MAX_LIFE_S).contains(&seconds)) {
        let detail = format!("expires_in_s must be from 1 to {MAX_LIFE_S}, which is 100 years");
        return Err(Problem::bad_request(detail).hint("omit it for a token that does not expire"));
    }
    let expires_ms = new
        .expires_in_s
        .map(|seconds| clock::now_ms().saturating_add_unsigned(seconds.saturating_mul(1_000)));
    if let Some(wrong) =
        new.channel_rights.iter().find(|right| !ChannelGrant::RIGHTS.contains(&right.as_str()))
    {
        let detail = format!("unknown channel right \"{}\"", sa_text::printable(wrong));
        return Err(Problem::bad_request(detail).hint("use read, publish, call or admin"));
    }
    if let Some(model) = new.tools.iter().find_map(|tool| tool.strip_prefix(MODEL_TOOL)) {
        let detail = format!("\"{}\" is a model, not a tool", sa_text::printable(model));
        return Err(
            Problem::bad_request(detail).hint("use --model NAME, or \"models\": [\"NAME\"]")
        );
    }
    let channels = ChannelGrant { channels: new.channels, channel_rights: new.channel_rights };
    let CreateToken { name, tools, models, node_id, .. } = new;
    let new = NewToken { name, role, tools, models, node_id, expires_ms, channels };
    let closes = role == Role::Node && app.admits_any_node();
    let (record, token) = app.tokens.create(new).await.map_err(|error| match error {
        CreateError::Taken(why) => Problem::new(409, "conflict", why)
            .hint("choose another name, or revoke the other token first"),
        CreateError::Store(error) => error.into(),
    })?;
    audit(&app, &identity, "token.created", &record);
    let notices = [
        closes.then(|| NODES_NEED_TOKENS.to_owned()),
        not_named(&record, role),
        namesakes(&app, &record),
    ];
    let notices: Vec<String> = notices.into_iter().flatten().collect();
    let notice = (!notices.is_empty()).then(|| notices.join("; "));
    let doc = TokenDoc { notice, ..TokenDoc::of(record, Some(token)) };
    Ok((StatusCode::CREATED, Json(doc)).into_response())
}

/// Returns a notice if another valid token has the same name.
///
/// An operator often creates a token under an old name to replace the old token, which stays valid.
fn namesakes(app: &App, made: &TokenRecord) -> Option<String> {
    let older = app
        .tokens
        .list()
        .into_iter()
        .filter(|token| token.name == made.name && token.id != made.id);
    let ids: Vec<String> = older.filter(is_valid).map(|token| token.id).collect();
    let name = sa_text::printable(&made.name);
    match &ids[..] {
        [] => None,
        [id] => Some(format!(
            "another token with the name \"{name}\" is still valid; to revoke it, run `switchboard token revoke {id}`"
        )),
        ids => Some(format!(
            "{} other tokens with the name \"{name}\" are still valid; `switchboard token list` shows their ids",
            ids.len()
        )),
    }
}

/// The maximum number of ids in the message. A longer list would not help to choose one.
const CANDIDATES: usize = 5;

fn is_valid(token: &TokenRecord) -> bool {
    token.revoked_ms.is_none() && token.expires_ms.is_none_or(|at| at > clock::now_ms())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevokeQuery {
    /// Revoke the token even if it is the last valid operator token.
    last_operator: Option<bool>,
}

/// Revokes a token by its id or name. Its sockets close and its calls fail at once.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path, description = "The token's id, or its name"), RevokeQuery),
    responses((status = 200, body = TokenDoc), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "More than one token has this name, or it is the last operator token"),
        (status = 503, body = Problem, description = "Revoked until a restart, but not stored: repeat the request")))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Segment(id): Segment,
    Params(query): Params<RevokeQuery>,
) -> Result<Json<TokenDoc>, Problem> {
    operator_only(&identity)?;
    let record = app.tokens.revoke(&id, query.last_operator.unwrap_or(false)).map_err(|why| {
        if why == NotRevoked::LastOperator {
            return Problem::new(409, "conflict", LAST_OPERATOR).hint(EVEN_SO);
        }
        let named = app
            .tokens
            .list()
            .into_iter()
            .filter(|token| token.revoked_ms.is_none() && token.name == id);
        let ids: Vec<String> = named.map(|token| token.id).collect();
        let name = sa_text::printable(&id);
        let problem = match &ids[..] {
            [] => Problem::new(404, "not_found", format!("there is no valid token \"{name}\"")),
            ids => {
                let some = ids[..ids.len().min(CANDIDATES)].join(", ");
                let more = if ids.len() > CANDIDATES { " and more" } else { "" };
                let detail =
                    format!("{} valid tokens have the name \"{name}\": {some}{more}", ids.len());
                Problem::new(409, "conflict", detail)
            }
        };
        problem.hint("use the id; `switchboard token list` shows the ids")
    })?;
    cut_off(&app, &identity, &record).await?;
    let was_valid = record.expires_ms.is_none_or(|at| at > clock::now_ms());
    let shut = was_valid && record.role == Role::Node.as_str() && app.needs_node_token();
    let notice = (shut
        && !app.tokens.list().iter().any(|token| token.role == record.role && is_valid(token)))
    .then(|| NODES_STAY_OUT.to_owned());
    Ok(Json(TokenDoc { notice, ..TokenDoc::of(record, None) }))
}

/// Ends everything that uses a revoked token, and stores the revocation.
pub(super) async fn cut_off(app: &App, by: &Identity, record: &TokenRecord) -> Result<(), Problem> {
    app.router.cancel_all(CancelReason::Revoked, |call| *call.principal.id == *record.id);
    audit(app, by, "token.revoked", record);
    // Connected nodes disconnect and release their names. Disconnected nodes cannot, so they are
    // forgotten here.
    app.router.directory().forget_grant(&Grant::stored_token(&record.id));
    app.end_owned(&record.id, "the caller's token was revoked").await;
    // In a separate task, because a disconnect of the operator must not prevent the write.
    let (app, written) = (App::clone(app), record.clone());
    let writing = tokio::spawn(async move { app.tokens.persist(&written).await });
    if let Ok(Err(error)) = writing.await {
        let detail = format!(
            "the token is revoked until the gateway restarts, but the revocation could not be stored: {error}"
        );
        return Err(Problem::new(503, "store", detail)
            .retryable()
            .hint("free some disk space, then revoke it again"));
    }
    Ok(())
}

fn audit(app: &App, by: &Identity, what: &'static str, record: &TokenRecord) {
    app.journal.audit(AuditEvent {
        name: what,
        actor: format!("{} {}", by.principal.role, by.principal.name),
        subject: record.id.clone(),
        detail: format!("{} \"{}\"", record.role, record.name),
    });
}
