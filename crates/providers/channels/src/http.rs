//! The HTTP routes of channels: the socket for participants, and the routes that need no socket.

mod connect;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use sa_core::{AuditEvent, CallError};
use sa_http::events::{event, sse_response};
use sa_http::{Http, Identity, JSON, Params, Payload, Problem, Segment, SocketRoute, parse};
use sa_text::json::to_json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::connect::upgrade;

use crate::{Channel, Channels, DeleteError, Draft, OpenError, Refusal, Sender};

/// The route for participants. Browsers connect here and can send a token only in the query.
pub const SOCKET: SocketRoute = SocketRoute {
    path: "/v1/channels/ws",
    clients: "participants of channels",
    allows_pages: true,
};

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub channels: Arc<Channels>,
    /// Cancelled when the gateway shuts down.
    pub closing: CancellationToken,
}

pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(connect::upgrade))
        .routes(routes!(show, delete))
        .routes(routes!(follow))
        .routes(routes!(history, publish))
        .routes(routes!(attachment))
}

/// Returns whether a route needs no token in a header.
pub fn is_open(path: &str) -> bool {
    path == SOCKET.path
}

/// The idle time after which a feed sends a keep-alive comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The maximum number of participants per page.
const MAX_ROSTER: usize = 1_000;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ChannelList {
    channels: Vec<ChannelDoc>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ChannelDoc {
    name: String,
    /// The number of connected participants.
    participants: usize,
    created_ms: i64,
    /// The oldest stored message. It is `last_id` plus one if there is none.
    first_id: u64,
    last_id: u64,
}

/// Lists the channels that the token may read.
#[utoipa::path(get, path = "/v1/channels", tag = "channels", responses((status = 200, body = ChannelList), (status = 401, body = Problem)))]
pub(crate) async fn list(
    State(Routes { channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Problem> {
    let visible =
        channels.list().await?.into_iter().filter(|channel| identity.rights(&channel.name).read);
    let channels = visible.map(|channel| ChannelDoc {
        name: channel.name,
        participants: channel.participants,
        created_ms: channel.created_ms,
        first_id: channel.first_id,
        last_id: channel.last_id,
    });
    Ok(json(&ChannelList { channels: channels.collect() }))
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Roster {
    name: String,
    participants: Vec<ParticipantDoc>,
    first_id: u64,
    last_id: u64,
    /// The position of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RosterQuery {
    /// The position of the page: the `next_cursor` of an earlier response.
    cursor: Option<String>,
    /// The number of participants per page, 1000 at most. A page is shorter if their metadata is
    /// large.
    limit: Option<usize>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ParticipantDoc {
    /// The name of the participant's token.
    id: String,
    /// The participant's metadata: handle, name, type, methods.
    #[schema(value_type = Object)]
    metadata: Option<Box<RawValue>>,
    joined_ms: i64,
    connections: usize,
}

/// Shows a channel and its participants.
#[utoipa::path(get, path = "/v1/channels/{name}", tag = "channels", params(("name" = String, Path, description = "The channel"), RosterQuery),
    responses((status = 200, body = Roster), (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(Routes { channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
    Params(query): Params<RosterQuery>,
) -> Result<Response, Problem> {
    let channel = readable(&channels, &identity, &name).await?;
    let bounds = channel.bounds().await?;
    let limit = query.limit.unwrap_or(MAX_ROSTER).clamp(1, MAX_ROSTER);
    let (participants, more) = channel.roster(query.cursor.as_deref(), limit);
    let next_cursor =
        participants.last().filter(|_| more).map(|participant| participant.id.to_string());
    let participants = participants.into_iter().map(|participant| ParticipantDoc {
        id: participant.id.to_string(),
        metadata: RawValue::from_string(participant.metadata.to_string()).ok(),
        joined_ms: participant.joined_ms,
        connections: participant.connections,
    });
    let participants = participants.collect();
    Ok(json(&Roster {
        name,
        participants,
        first_id: bounds.first,
        last_id: bounds.last,
        next_cursor,
    }))
}

/// Deletes a channel without participants, including its messages.
#[utoipa::path(delete, path = "/v1/channels/{name}", tag = "channels", params(("name" = String, Path, description = "The channel")),
    responses((status = 204, description = "Deleted"), (status = 403, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn delete(
    State(Routes { http, channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
) -> Result<Response, Problem> {
    if !identity.rights(&name).admin {
        return Err(Problem::new(403, "not_allowed", "the token may not delete this channel"));
    }
    channels.delete(&name).await.map_err(|error| match error {
        DeleteError::Missing => missing(&name),
        DeleteError::Occupied => Problem::new(409, "conflict", error.to_string())
            .hint("wait until all participants have left"),
        DeleteError::Store(error) => error.into(),
    })?;
    http.journal.audit(AuditEvent {
        name: "channel.deleted",
        actor: format!("{} {}", identity.principal.role, identity.principal.name),
        subject: name,
        detail: String::new(),
    });
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// Only messages with a lower id; the newest messages if absent.
    before: Option<u64>,
    /// The number of messages per page, 500 at most.
    limit: Option<usize>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct History {
    /// Oldest first, in the format of the channel protocol.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Box<RawValue>>,
    /// Whether there are older messages.
    has_more: bool,
}

/// Lists stored messages of a channel.
#[utoipa::path(get, path = "/v1/channels/{name}/messages", tag = "channels", params(("name" = String, Path, description = "The channel"), HistoryQuery),
    responses((status = 200, body = History), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn history(
    State(Routes { channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
    Params(query): Params<HistoryQuery>,
) -> Result<Response, Problem> {
    let channel = readable(&channels, &identity, &name).await?;
    let page = channel.page(query.before, query.limit.unwrap_or(100)).await?;
    Ok(json(&History { messages: page.messages, has_more: page.more }))
}

/// Streams the stored messages of a channel as server-sent events.
///
/// The events are named `message`. With `Last-Event-ID` the stream continues after that message. A
/// client that follows this stream is not listed as a participant.
#[utoipa::path(get, path = "/v1/channels/{name}/events", tag = "channels", params(("name" = String, Path, description = "The channel")),
    responses((status = 200, body = String, content_type = "text/event-stream", description = "A stream of events"), (status = 403, body = Problem)))]
pub(crate) async fn follow(
    State(Routes { channels, closing, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !identity.rights(&name).read {
        return Err(unreadable());
    }
    let channel = channels.channel(&name, &identity.principal).await.map_err(unopened)?;
    let mut news = channel.follow();
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut after = match resumed {
        Some(after) => after,
        None => channel.bounds().await?.last,
    };
    // Holds one event, so the reader sets the pace and a disconnect is noticed at once.
    let (events, body) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let page = channel.since(after).await.unwrap_or_default();
            let caught_up = page.is_empty();
            for (id, json) in page {
                after = id;
                if events.send(format!("id: {id}\n{}", event("message", &json))).await.is_err() {
                    return;
                }
            }
            if !caught_up {
                continue;
            }
            tokio::select! {
                () = closing.cancelled() => return,
                () = identity.over() => return,
                () = events.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if events.send(": still here\n\n".to_owned()).await.is_err() {
                        return;
                    }
                }
                changed = news.changed() => if changed.is_err() { return },
            }
        }
    });
    Ok(sse_response(body))
}

/// Returns the bytes of an attachment.
#[utoipa::path(get, path = "/v1/channels/{name}/messages/{id}/attachments/{attachment}", tag = "channels",
    params(("name" = String, Path, description = "The channel"), ("id" = u64, Path, description = "The message's id"),
        ("attachment" = String, Path, description = "The attachment's id")),
    responses((status = 200, body = String, content_type = "*/*", description = "The content of the attachment"), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn attachment(
    State(Routes { channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    path: Result<Path<(String, u64, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Problem> {
    let Path((name, id, attachment)) =
        path.map_err(|error| Problem::bad_request(error.body_text()))?;
    let channel = readable(&channels, &identity, &name).await?;
    let found = channel.attachment(id, &attachment).await?;
    let (mime_type, bytes) = found.ok_or_else(|| {
        Problem::new(404, "not_found", "the message has no such attachment, or it was deleted")
    })?;
    // A browser must not run the file, even if a participant declares it as executable content.
    let headers = [
        (header::CONTENT_TYPE, mime_type.as_str()),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
    ];
    Ok((headers, Body::from(bytes)).into_response())
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PublishBody<'a> {
    /// The type of the message, such as `message`.
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    #[schema(value_type = Object)]
    payload: &'a RawValue,
    /// Whether the message is stored; true by default.
    persist: Option<bool>,
    /// A retry with the same id is stored only once.
    client_message_id: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct PublishedDoc {
    /// Absent for a message that is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Whether the message had already been stored.
    duplicate: bool,
}

/// Publishes a message in a channel, under the token's name.
///
/// The message is on disk when the response is sent, unless it is not to be stored.
#[utoipa::path(post, path = "/v1/channels/{name}/messages", tag = "channels", request_body = PublishBody,
    params(("name" = String, Path, description = "The channel; its first message creates it")),
    responses((status = 201, body = PublishedDoc), (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn publish(
    State(Routes { channels, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Segment(name): Segment,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let rights = identity.rights(&name);
    if !rights.publish {
        return Err(Problem::new(403, "not_allowed", "the token may not publish in this channel"));
    }
    let body: PublishBody<'_> = parse(&body)?;
    let channel = channels.channel(&name, &identity.principal).await.map_err(unopened)?;
    let draft = Draft {
        kind: body.kind.into(),
        payload: body.payload.get(),
        persist: body.persist.unwrap_or(true),
        client_message_id: body.client_message_id.map(Into::into),
        attachments: Vec::new(),
        bytes: bytes::Bytes::new(),
    };
    let sender = Sender { principal: identity.principal, rights };
    let published = channel.publish(&sender, draft).await.map_err(refused)?;
    let answer = PublishedDoc { id: published.id, duplicate: published.duplicate };
    Ok((StatusCode::CREATED, json(&answer)).into_response())
}

async fn readable(
    channels: &Arc<Channels>,
    identity: &Identity,
    name: &str,
) -> Result<Arc<Channel>, Problem> {
    if !identity.rights(name).read {
        return Err(unreadable());
    }
    let found = channels.existing(name).await?;
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Problem {
    let name = sa_text::printable(name);
    Problem::new(404, "not_found", format!("there is no channel \"{name}\""))
        .hint("`GET /v1/channels` lists them")
}

fn unreadable() -> Problem {
    Problem::new(403, "not_allowed", "the token may not read this channel")
}

fn unopened(error: OpenError) -> Problem {
    match error {
        OpenError::Name | OpenError::Context | OpenError::Config => {
            Problem::bad_request(error.to_string())
        }
        OpenError::OtherContext => Problem::new(409, "conflict", error.to_string()),
        OpenError::TooMany(refused) => Problem::from(&CallError::from(refused)),
        OpenError::Store(error) => error.into(),
    }
}

fn refused(refusal: Refusal) -> Problem {
    let (status, kind) = match refusal.code {
        "not-allowed" => (403, "not_allowed"),
        "method-not-found" | "provider-not-found" => (404, "not_found"),
        "conflict" => (409, "conflict"),
        "store-error" => (503, "store"),
        "overloaded" => (429, "overloaded"),
        _ => (400, "bad_request"),
    };
    let problem = Problem::new(status, kind, refusal.message);
    match refusal.hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn json(value: &impl Serialize) -> Response {
    ([(header::CONTENT_TYPE, JSON)], to_json(value)).into_response()
}
