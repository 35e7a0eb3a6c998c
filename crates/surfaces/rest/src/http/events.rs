//! `/v1/events`: a live feed of events.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use sa_core::shown::{Shown, ShownNarrow};
use sa_core::{Notice, NoticeBody, Role, Scope, SessionNews, View};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::App;
use sa_http::Identity;
use sa_http::events::event;
use sa_http::events::sse_response;
use sa_http::{Params, Problem};

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
    let lists = Lists::new(&app, &identity);
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
                    Ok(notice) if watches(&notice) || lists.has_news(&app, &identity, &notice) => {
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

/// The lists of a principal at the last notice: the tools for everyone, and those of each channel
/// and session.
#[derive(Debug)]
pub(super) struct Lists {
    shared: Shown,
    narrow: ShownNarrow,
}

impl Lists {
    pub(super) fn new(app: &App, identity: &Identity) -> Self {
        let principal = &identity.principal;
        Self {
            shared: Shown::new(&app.router, View::of(Arc::clone(principal))),
            narrow: ShownNarrow::new(&app.router, Arc::clone(principal), |scope| {
                may_see(app, identity, scope)
            }),
        }
    }

    /// Returns whether a notice is for this principal. A change of tools is only for principals
    /// whose list has changed.
    pub(super) fn has_news(&self, app: &App, identity: &Identity, notice: &Notice) -> bool {
        if notice.to.as_ref().is_some_and(|to| *to != identity.principal.id) {
            return false;
        }
        match &notice.body {
            NoticeBody::ToolsChanged { scope: Some(scope), .. } if *scope != Scope::Everyone => {
                self.narrow.changed(&app.router, scope, may_see(app, identity, scope))
            }
            NoticeBody::ToolsChanged { scope, .. } => {
                self.shared.changed(&app.router, scope.as_ref())
            }
            NoticeBody::DocumentsChanged { provider } => {
                self.shared.documents_changed(provider.as_ref())
            }
            NoticeBody::Session { .. } => true,
        }
    }
}

/// Returns whether a principal may see the tools of a narrow scope.
fn may_see(app: &App, identity: &Identity, scope: &Scope) -> bool {
    match scope {
        Scope::Session(id) => app.http.view(identity, Some(id)).scopes.contains(scope),
        Scope::Channel(name) => identity.rights(name).call,
        // No list contains these tools, because they belong to a single request.
        Scope::User(_) | Scope::Everyone => false,
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
