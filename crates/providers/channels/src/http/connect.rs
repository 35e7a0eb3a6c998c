//! The socket that participants connect to.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Uri, header};
use axum::response::Response;
use sa_http::auth::{bearer, unauthorized};
use sa_http::connection::settle;
use sa_http::slot::{Slot, evicted};
use sa_http::{Ends, Http, Identity, Problem, Refused, query};
use sa_limits::budget::Holder;
use sa_protocol::channel::{CLOSE_CHANNEL_REQUIRED, CLOSE_UNAUTHORIZED};
use sa_socket::{Close, NoUpgrade, SocketLimits, Upgrade};
use tokio_util::sync::CancellationToken;

use super::Routes;
use crate::{Admission, Entrance};

/// The maximum length of an instance name.
const MAX_INSTANCE: usize = 128;

/// Opens a channel's WebSocket.
///
/// The protocol documentation describes the messages.
#[utoipa::path(get, path = "/v1/channels/ws", tag = "channels",
    params(("token" = Option<String>, Query, description = "The participant's token"),
        ("channel" = String, Query, description = "The channel"),
        ("sinceId" = Option<u64>, Query, description = "The id of the last message that the participant has received; later messages are sent first"),
        ("epoch" = Option<String>, Query, description = "The epoch that sinceId belongs to, as received in `ready`"),
        ("roster" = Option<String>, Query, description = "`snapshot`: send the roster in `ready`"),
        ("instance" = Option<String>, Query, description = "An id for this program, the same on all of its connections; each call is sent to one of the participant's programs"),
        ("contextId" = Option<String>, Query, description = "The context that the channel must belong to; a channel without a context takes the first one that is given"),
        ("channelConfig" = Option<String>, Query, description = "A JSON object that is stored if this connection creates the channel, and sent in `ready`")),
    responses((status = 101, description = "Switching to WebSocket; closed with 4001 if the token is missing or not valid for the channel, with 4002 if no channel is given, with 4005 if the contextId or channelConfig is invalid, with 4006 if the channel belongs to another context"), (status = 401, body = Problem), (status = 426, body = Problem, description = "The request does not ask for a WebSocket")))]
pub async fn upgrade(
    State(Routes { http, channels, .. }): State<Routes>,
    upgrade: Result<Upgrade, NoUpgrade>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = identity(&http, &request)?;
    let upgrade = upgrade.map_err(|error| match &identity {
        Some(_) => error.into(),
        None => unauthorized(Refused::Missing),
    })?;
    let holder =
        identity.as_ref().map_or_else(Holder::anonymous, |identity| identity.principal.holder());
    let budget = Some(http.requests.share(&holder));
    let limits =
        SocketLimits { max_message_bytes: channels.max_frame_bytes(), cuts: false, budget };
    let entrance = entrance(request.uri())?;
    let ends = request.extensions().get::<Ends>().copied();
    let tried = query::only(request.uri(), "token")?.is_some()
        || request.headers().contains_key(header::AUTHORIZATION);
    let path = request.uri().path().to_owned();
    let slot = request.extensions().get::<Arc<Slot>>().cloned();
    let refuse = |upgrade: Upgrade, code, reason| {
        http.journal.count("channel", "door");
        let close = Close::new(code, reason);
        // The socket is not authenticated, so a newer connection may evict it during the closing
        // handshake.
        upgrade.serve(limits.clone(), |socket| async move {
            tokio::select! {
                () = sa_socket::dismiss(socket, &close) => {}
                () = evicted(slot) => {}
            }
        })
    };
    let Some(identity) = identity else {
        if let Some(ends) = ends.filter(|_| tried) {
            http.token_refused(Refused::Unknown, ends, &path);
        }
        return Ok(refuse(
            upgrade,
            CLOSE_UNAUTHORIZED,
            "unauthorized: the token is missing or not valid; connect with ?token=TOKEN",
        ));
    };
    let Some(entrance) = entrance else {
        return Ok(refuse(
            upgrade,
            CLOSE_CHANNEL_REQUIRED,
            "channel required: connect with ?channel=NAME; sinceId must be a number",
        ));
    };
    settle(request.extensions(), || holder)?;
    Ok(upgrade.serve(limits, move |socket| async move {
        let rights = identity.rights(&entrance.channel);
        let revoked = CancellationToken::new();
        let admission = Admission {
            principal: Arc::clone(&identity.principal),
            rights,
            revoked: revoked.clone(),
        };
        let mut serve = Box::pin(channels.serve(socket, admission, entrance));
        // Runs in a separate task. The upgrade task is larger, because it has space for the whole
        // upgrade.
        tokio::spawn(async move {
            tokio::select! {
                () = &mut serve => return,
                () = identity.over() => revoked.cancel(),
            }
            serve.await;
        });
    }))
}

/// Authenticates the request by the token in the query, or else by the one in the header.
fn identity(http: &Http, request: &Request) -> Result<Option<Identity>, Problem> {
    let token = match query::only(request.uri(), "token")? {
        Some(_) => query::decoded(request.uri(), "token").ok().flatten(),
        None => bearer(request.headers()).ok().map(Into::into),
    };
    Ok(token.and_then(|token| http.auth.authenticate(&token).ok()))
}

/// Reads the channel that a participant wants to join. Returns `None` if a required parameter is
/// missing or invalid.
fn entrance(uri: &Uri) -> Result<Option<Entrance>, Problem> {
    // Duplicate parameters are refused, because choosing one would be a guess. A value that is not
    // UTF-8 counts as missing, like an empty one.
    let decoded = |name| query::only(uri, name).map(|_| query::decoded(uri, name).ok().flatten());
    let (channel, epoch) = (decoded("channel")?, decoded("epoch")?);
    let since =
        query::only(uri, "sinceId")?.filter(|text| !text.is_empty()).map(str::parse).transpose();
    let snapshot = query::only(uri, "roster")? == Some("snapshot");
    let instance =
        query::only(uri, "instance")?.filter(|text| (1..=MAX_INSTANCE).contains(&text.len()));
    let (Some(channel), Ok(since)) = (channel.filter(|name| !name.is_empty()), since) else {
        return Ok(None);
    };
    let named = |name| {
        decoded(name).map(|value| value.filter(|value| !value.is_empty()).map(Cow::into_owned))
    };
    let (context, config) = (named("contextId")?, named("channelConfig")?);
    let (channel, epoch) = (channel.into_owned(), epoch.map(Cow::into_owned));
    Ok(Some(Entrance {
        channel,
        since,
        epoch,
        snapshot,
        instance: instance.map(Into::into),
        context,
        config,
    }))
}
