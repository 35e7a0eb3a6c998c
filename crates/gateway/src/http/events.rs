//! `/v1/events`: a live feed of events.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use sa_core::shown::Shown;
use sa_core::{Notice, NoticeBody, Role, Scope, SessionNews, View};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::sse::{event, sse_response};
use super::{App, Params, Problem};
use crate::tokens::Identity;

const QUEUE: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedQuery {
    /// Only watch. Otherwise the reader counts as listening to requests of its sessions' agents,
    /// and as disconnected when the stream ends.
    #[serde(default)]
    watch: bool,
}

/// Streams live events as server-sent events.
///
/// The events are:
/// - `call_started` and `call_ended`;
/// - `tools_changed` and `documents_changed`;
/// - `session`: an event in one of the token's sessions;
/// - `caller_tool_request`: an agent of such a session calls one of the token's tools;
/// - `node_event`, for operators: an event that a node sent outside of its calls, as
///   `{"node","event","data","at_ms"}`;
/// - `audit`, for operators.
///
/// A reader that falls behind receives `missed` with the number of lost events.
#[utoipa::path(get, path = "/v1/events", tag = "calls", params(FeedQuery), responses((status = 200, body = String, content_type = "text/event-stream", description = "A stream of events"), (status = 401, body = Problem)))]
pub(crate) async fn follow(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<FeedQuery>,
) -> Result<Response, Problem> {
    let (events, body) = mpsc::channel(QUEUE);
    let mut feed = app.journal.follow();
    let mut notices = app.notices.subscribe();
    let shown = Shown::new(&app.router, View::of(Arc::clone(&identity.principal)));
    // A reader of this feed receives the requests for its tools in all sessions.
    let attending = (!query.watch).then(|| app.notices.attend(&identity.principal.id));
    // The notices are already subscribed. A new notice may therefore be sent twice, but is never
    // lost.
    let pending = app.notices.pending(&identity.principal);
    tokio::spawn(async move {
        let _attending = attending;
        for notice in pending {
            if events.send(told(&notice.body)).await.is_err() {
                return;
            }
        }
        let operator = identity.principal.role == Role::Operator;
        // The console shows the providers as well as their tools.
        let watches = |notice: &Notice| {
            operator && query.watch && matches!(notice.body, NoticeBody::ToolsChanged { .. })
        };
        loop {
            let text = tokio::select! {
                () = app.closing.cancelled() => return,
                () = identity.over() => return,
                () = events.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => ": still here\n\n".to_owned(),
                item = feed.recv() => match item {
                    Ok(item) => {
                        let own = item.principal.as_ref() == Some(&identity.principal.id);
                        if !operator && !own {
                            continue;
                        }
                        event(item.name, &item.json)
                    }
                    Err(RecvError::Lagged(missed)) => event("missed", &format!("{{\"events\":{missed}}}")),
                    Err(RecvError::Closed) => return,
                },
                notice = notices.recv() => match notice {
                    Ok(notice) if watches(&notice) || is_for(&app, &identity, &shown, &notice) => {
                        told(&notice.body)
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                },
            };
            if events.send(text).await.is_err() {
                return;
            }
        }
    });
    Ok(sse_response(body))
}

/// Whether a notice is for this principal.
///
/// A change of tools is for principals that can list the changed tools.
pub(super) fn is_for(app: &App, identity: &Identity, shown: &Shown, notice: &Notice) -> bool {
    if notice.to.as_ref().is_some_and(|to| *to != identity.principal.id) {
        return false;
    }
    let scope = match &notice.body {
        NoticeBody::ToolsChanged { scope, .. } => scope,
        NoticeBody::DocumentsChanged { provider } => {
            return shown.documents_changed(provider.as_ref());
        }
        NoticeBody::Session { .. } => return true,
    };
    match scope {
        Some(Scope::Session(id)) => {
            app.view(identity, Some(id)).scopes.iter().any(|seen| Some(seen) == scope.as_ref())
        }
        Some(Scope::Channel(name)) => identity.rights(name).call,
        // No list contains these tools, because they belong to a single request.
        Some(Scope::User(_)) => false,
        Some(Scope::Everyone) | None => shown.changed(&app.router, scope.as_ref()),
    }
}

fn told(notice: &NoticeBody) -> String {
    let (name, data) = words(notice);
    event(name, &data)
}

/// Returns the event name of a notice, and its data.
pub(super) fn words(notice: &NoticeBody) -> (&'static str, Cow<'_, str>) {
    match notice {
        NoticeBody::ToolsChanged { revision, .. } => {
            ("tools_changed", format!("{{\"revision\":{revision}}}").into())
        }
        NoticeBody::DocumentsChanged { .. } => ("documents_changed", "{}".into()),
        NoticeBody::Session { kind: SessionNews::CallerToolRequest, data, .. } => {
            ("caller_tool_request", data.as_str().into())
        }
        NoticeBody::Session { kind: SessionNews::Event, data, .. } => {
            ("session", data.as_str().into())
        }
    }
}
