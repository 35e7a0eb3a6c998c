//! The live feed of events.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use sa_core::{Notice, NoticeBody, Role};
use sa_http::events::{event, sse_response};
use sa_http::{Identity, Params, Problem};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::Routes;
use super::news::{Lists, describe};

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
    State(Routes { http, feed, notices: sent, closing, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
    Params(query): Params<FeedQuery>,
) -> Result<Response, Problem> {
    let (events, body) = mpsc::channel(QUEUE);
    let mut feed = feed.follow();
    let mut notices = sent.subscribe();
    let lists = Lists::new(&http, &identity);
    // A reader of this feed receives the requests for its tools in all sessions.
    let attending = (!query.watch).then(|| sent.add_reader(&identity.principal.id));
    // The notices are already subscribed. A new notice may therefore be sent twice, but is never
    // lost.
    let pending = sent.pending(&identity.principal);
    tokio::spawn(async move {
        let _attending = attending;
        for notice in pending {
            if events.send(notice_event(&notice.body)).await.is_err() {
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
                () = closing.cancelled() => return,
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
                    Ok(notice) if watches(&notice) || lists.has_news(&http, &identity, &notice) => {
                        notice_event(&notice.body)
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

fn notice_event(notice: &NoticeBody) -> String {
    let (name, data) = describe(notice);
    event(name, &data)
}
