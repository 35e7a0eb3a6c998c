//! Tokens over REST, for operators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sa_core::call::CancelReason;
use sa_core::{AuditEvent, Journal as _, Role, clock};
use serde::{Deserialize, Serialize};

use super::body::Payload;
use super::front::operator_only;
use super::nodes::grant_of;
use super::tools::parse;
use super::{App, Params, Problem, Segment};
use crate::tokens::{ChannelGrant, CreateError, Identity, MAX_LIFE_S, MODEL_TOOL, NewToken, NotRevoked, TokenRecord};

const MAX_NAME: usize = 128;

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateToken {
    /// Who it is for.
    name: String,
    /// `operator`, `agent`, `caller`, `node`, `participant`, `user` or `monitor` (reads `/metrics`, nothing else).
    role: String,
    /// The tools it may use, `*` standing for any characters. A token that names tools, channels or models has what it
    /// names and nothing else. One that names nothing has everything, but a `participant` channels only.
    #[serde(default)]
    tools: Vec<String>,
    /// The only node id it may use, for a node's token.
    node_id: Option<String>,
    /// The channels it may use, `*` standing for any characters. Methods of those that it names one by one are among its
    /// tools.
    #[serde(default)]
    channels: Vec<String>,
    /// The models it may ask, `*` standing for any characters.
    #[serde(default)]
    models: Vec<String>,
    /// What it may do in channels: `read`, `publish`, `call`, `admin` (delete them); all but the last when empty.
    #[serde(default)]
    channel_rights: Vec<String>,
    /// How long it is good for, from a second to a hundred years; for ever when absent.
    expires_in_s: Option<u64>,
}

/// A token as operators see it. The token itself is shown when it is made, and never again.
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
    /// What else has changed by making or revoking it, or what it cannot do.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

/// What a token that names something may not use, with the flag that names more of it.
const NOT_NAMED: [(&str, &str); 3] =
    [("call no tools of the gateway", "--tool"), ("use no channels", "--channel"), ("ask no models", "--model")];

/// What a narrowed token may not do at all, for a person who makes one.
fn not_named(record: &TokenRecord, role: Role) -> Option<String> {
    let named = [&record.tools, &record.channels.channels, &record.models].map(|list| !list.is_empty());
    let narrowed = named.contains(&true);
    let participant = role == Role::Participant;
    // A participant that names nothing has every channel, and nothing else.
    let missing =
        [!named[0] && (narrowed || participant), !named[1] && narrowed, !named[2] && (narrowed || participant)];
    let missing = NOT_NAMED.iter().zip(missing).filter(|(_, missing)| *missing).map(|(words, _)| words);
    let (may, flags): (Vec<&str>, Vec<&str>) = missing.copied().unzip();
    let told = role != Role::Operator && role.may_call_tools() && !may.is_empty();
    told.then(|| format!("it may {}; to allow some, name them with {}", may.join(", "), flags.join(", ")))
}

/// What nobody would expect of making a token.
const NODES_NEED_TOKENS: &str = "this is the first token for a node: nodes without one are refused from now on, when they \
connect the next time";

/// Nor of revoking the last one: who takes a token away does not mean to open the door.
const NODES_STAY_OUT: &str = "this was the last valid token for a node: nodes without one stay refused; to \
let nodes in: switchboard token create NAME --role node";

/// What revoking the last token of an operator means.
const LAST_OPERATOR: &str = "this is the last valid token for operators: without it nobody can manage the gateway, until a restart \
writes a new one to operator.token in the data directory";

/// How to do it all the same.
const EVEN_SO: &str = "make another one first, or say that it is meant: DELETE with ?last_operator=true";

impl TokenDoc {
    fn of(record: TokenRecord, token: Option<String>) -> Self {
        let TokenRecord {
            id, name, role, created_ms, expires_ms, revoked_ms, tools, models, node_id, channels, ..
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

/// Every token, oldest first, revoked ones included.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", responses((status = 200, body = TokenList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<TokenList>, Problem> {
    operator_only(&identity)?;
    let tokens = app.tokens.list().into_iter().map(|record| TokenDoc::of(record, None)).collect();
    Ok(Json(TokenList { tokens }))
}

/// Makes a token. The answer is the only place where it is ever shown.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = CreateToken,
    responses((status = 201, body = TokenDoc), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem, description = "Somebody speaks under this name already")))]
pub(crate) async fn create(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    operator_only(&identity)?;
    let new: CreateToken = parse(&body).map_err(|problem| problem.hint("a token needs a \"name\" and a \"role\""))?;
    let role = Role::parse(&new.role).ok_or_else(|| {
        let roles: Vec<_> = Role::ALL.iter().map(|role| role.as_str()).collect();
        Problem::bad_request(format!("there is no role \"{}\"", crate::redact::printable(&new.role)))
            .hint(format!("one of {}", roles.join(", ")))
    })?;
    if new.name.len() > MAX_NAME {
        return Err(Problem::bad_request(format!("name has more than {MAX_NAME} bytes; shorten it")));
    }
    sa_protocol::validate_name(&new.name).map_err(|error| Problem::bad_request(format!("name: {error}")))?;
    if new.node_id.is_some() && role != Role::Node {
        return Err(Problem::bad_request("node_id is for tokens with the role \"node\""));
    }
    if let Some(id) = &new.node_id {
        sa_nodes::check_id(id).map_err(|why| Problem::bad_request(format!("node_id: {why}")))?;
    }
    // What narrows nothing would make somebody think that it does.
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
        let detail = format!("expires_in_s must be from 1 to {MAX_LIFE_S}, which is a hundred years");
        return Err(Problem::bad_request(detail).hint("leave it out for a token that does not end"));
    }
    let expires_ms =
        new.expires_in_s.map(|seconds| clock::now_ms().saturating_add_unsigned(seconds.saturating_mul(1_000)));
    if let Some(wrong) = new.channel_rights.iter().find(|right| !ChannelGrant::RIGHTS.contains(&right.as_str())) {
        let detail = format!("there is no right \"{}\" in channels", crate::redact::printable(wrong));
        return Err(Problem::bad_request(detail).hint("read, publish, call or admin"));
    }
    if let Some(model) = new.tools.iter().find_map(|tool| tool.strip_prefix(MODEL_TOOL)) {
        let detail = format!("a model is no tool: name \"{}\" among the models", crate::redact::printable(model));
        return Err(Problem::bad_request(detail).hint("use --model NAME, or \"models\": [\"NAME\"]"));
    }
    let channels = ChannelGrant { channels: new.channels, channel_rights: new.channel_rights };
    let CreateToken { name, tools, models, node_id, .. } = new;
    let new = NewToken { name, role, tools, models, node_id, expires_ms, channels };
    let closes = role == Role::Node && app.config.node_tokens.is_empty() && !app.tokens.any_for_nodes();
    let (record, token) = app.tokens.create(new).await.map_err(|error| match error {
        CreateError::Taken(why) => {
            Problem::new(409, "conflict", why).hint("choose another name, or revoke the other token first")
        }
        CreateError::Store(error) => error.into(),
    })?;
    audit(&app, &identity, "token.created", &record);
    let notices = [closes.then(|| NODES_NEED_TOKENS.to_owned()), not_named(&record, role), namesakes(&app, &record)];
    let notices: Vec<String> = notices.into_iter().flatten().collect();
    let notice = (!notices.is_empty()).then(|| notices.join("; "));
    let doc = TokenDoc { notice, ..TokenDoc::of(record, Some(token)) };
    Ok((StatusCode::CREATED, Json(doc)).into_response())
}

/// Whoever makes a token again under its old name often means to replace the old one, which goes on being good.
fn namesakes(app: &App, made: &TokenRecord) -> Option<String> {
    let older = app.tokens.list().into_iter().filter(|token| token.name == made.name && token.id != made.id);
    let ids: Vec<String> = older.filter(is_valid).map(|token| token.id).collect();
    let name = crate::redact::printable(&made.name);
    match &ids[..] {
        [] => None,
        [id] => Some(format!(
            "another valid token is called \"{name}\" and stays good; to end it: switchboard token revoke {id}"
        )),
        ids => Some(format!(
            "{} other valid tokens are called \"{name}\" and stay good; switchboard token list has their ids",
            ids.len()
        )),
    }
}

/// More ids than these help nobody to choose.
const CANDIDATES: usize = 5;

fn is_valid(token: &TokenRecord) -> bool {
    token.revoked_ms.is_none() && token.expires_ms.is_none_or(|at| at > clock::now_ms())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevokeQuery {
    /// Whether it is meant even if it is the last valid token for operators.
    last_operator: Option<bool>,
}

/// Revokes a token by its id or its name: its sockets close and its calls fail at once.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path, description = "The token's id, or its name"), RevokeQuery),
    responses((status = 200, body = TokenDoc), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "More than one token has this name, or it is the last one for operators"),
        (status = 503, body = Problem, description = "Revoked until a restart, but not written: repeat it")))]
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
        let named = app.tokens.list().into_iter().filter(|token| token.revoked_ms.is_none() && token.name == id);
        let ids: Vec<String> = named.map(|token| token.id).collect();
        let name = crate::redact::printable(&id);
        let problem = match &ids[..] {
            [] => Problem::new(404, "not_found", format!("there is no valid token \"{name}\"")),
            ids => {
                let some = ids[..ids.len().min(CANDIDATES)].join(", ");
                let more = if ids.len() > CANDIDATES { " and more" } else { "" };
                let detail = format!("{} valid tokens are called \"{name}\": {some}{more}", ids.len());
                Problem::new(409, "conflict", detail)
            }
        };
        problem.hint("use the id, which the list of tokens shows (switchboard token list)")
    })?;
    cut_off(&app, &identity, &record).await?;
    let was_valid = record.expires_ms.is_none_or(|at| at > clock::now_ms());
    let shut = was_valid
        && record.role == Role::Node.as_str()
        && app.config.node_tokens.is_empty()
        && app.tokens.any_for_nodes();
    let notice = (shut && !app.tokens.list().iter().any(|token| token.role == record.role && is_valid(token)))
        .then(|| NODES_STAY_OUT.to_owned());
    Ok(Json(TokenDoc { notice, ..TokenDoc::of(record, None) }))
}

/// Ends what a token that has just been revoked was used for, and makes its end last.
pub(super) async fn cut_off(app: &App, by: &Identity, record: &TokenRecord) -> Result<(), Problem> {
    app.router.cancel_all(CancelReason::Revoked, |call| *call.principal.id == *record.id);
    audit(app, by, "token.revoked", record);
    // Nodes that are here leave by themselves, and free what they hold; those that are away cannot.
    app.router.directory().forget_grant(&grant_of(&record.id));
    if let Some(sessions) = &app.sessions {
        sessions.end_owned(&record.id, "the caller's token was revoked").await;
    }
    // In a task of its own: an operator who hangs up must not keep it from the disk.
    let (app, written) = (App::clone(app), record.clone());
    let writing = tokio::spawn(async move { app.tokens.persist(&written).await });
    if let Ok(Err(error)) = writing.await {
        let detail = format!("the token is revoked until the gateway restarts, but not for good: {error}");
        return Err(Problem::new(503, "store", detail).retryable().hint("make room on the disk, then revoke it again"));
    }
    Ok(())
}

fn audit(app: &App, by: &Identity, what: &'static str, record: &TokenRecord) {
    app.journal.audit(AuditEvent {
        what,
        who: format!("{} {}", by.principal.role, by.principal.name),
        subject: record.id.clone(),
        detail: format!("{} \"{}\"", record.role, record.name),
    });
}
