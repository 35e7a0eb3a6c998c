//! A call as a stream of server-sent events: `progress`, `chunk`, then one `done` or `error`.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use sa_core::call::CallRequest;
use sa_core::{Backlog, Finished, Overrun, Update, UpdateSink};
use sa_http::blocks::raw;
use sa_http::events::{event, sse_response};
use sa_http::{Http, Problem, call_id_header, wire_attachments};
use serde_json::json;
use tokio::sync::mpsc;

use super::call::done_json;

/// The maximum number of queued events per reader. `limits.max_outbox_bytes` bounds their total
/// size.
///
/// If the reader falls further behind, its call fails with a reason.
const QUEUE: usize = 1_024;

pub(super) fn streamed(http: &Http, request: CallRequest) -> Response {
    let news = Backlog::new(QUEUE, http.max_outbox_bytes);
    let running =
        http.router.start(request, Some(Arc::new(Sink(news.clone())) as Arc<dyn UpdateSink>));
    let header = call_id_header(running.id());
    // Holds one event, so the reader sets the pace and a disconnect is noticed at once.
    let (events, body) = mpsc::channel::<String>(1);
    tokio::spawn(async move {
        let mut outcome = std::pin::pin!(running.outcome());
        // An update that waits for the reader. The call continues meanwhile, so its deadline and a
        // cancel still apply.
        let mut held = None;
        let finished = loop {
            tokio::select! {
                biased;
                finished = &mut outcome => break finished,
                room = events.reserve(), if held.is_some() => match room {
                    Ok(room) => room.send(held.take().unwrap_or_default()),
                    Err(_) => return,
                },
                update = news.next(), if held.is_none() => held = Some(update_event(&update)),
                // Dropping the call cancels it at the provider.
                () = events.closed() => return,
            }
        };
        if news.is_closed() {
            held = None;
        }
        let rest = std::iter::from_fn(|| news.try_next().map(|update| update_event(&update)));
        for event in held.into_iter().chain(rest) {
            if events.send(event).await.is_err() {
                return;
            }
        }
        let last = |finished: &Finished| match &finished.outcome {
            Ok(output) => event("done", &done_json(finished, output)),
            Err(error) => {
                event("error", &sa_text::json::to_json(&Problem::call(error, finished.id)))
            }
        };
        let last = finished.render(last).await;
        let _ = events.send(last).await;
    });
    (header, sse_response(body)).into_response()
}

/// Queues a call's updates for the reader of its events.
struct Sink(Backlog);

impl UpdateSink for Sink {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        let only_latest_matters = matches!(update, Update::Progress { .. });
        match self.0.push(update) {
            // A result with a missing chunk would be wrong.
            Err(Overrun) if !only_latest_matters => {
                self.0.close();
                Err(Overrun)
            }
            _ => Ok(()),
        }
    }
}

fn update_event(update: &Update) -> String {
    match update {
        Update::Progress { progress, total, message } => {
            let mut body = json!({ "progress": progress });
            if let Some(total) = total {
                body["total"] = json!(total);
            }
            if let Some(message) = message {
                body["message"] = json!(message);
            }
            event("progress", &body.to_string())
        }
        Update::Chunk { content, attachments } => {
            #[derive(serde::Serialize)]
            struct Chunk<'a> {
                content: Option<std::borrow::Cow<'a, serde_json::value::RawValue>>,
                #[serde(skip_serializing_if = "Vec::is_empty")]
                attachments: Vec<sa_protocol::Attachment<'static>>,
            }
            let chunk = Chunk { content: raw(content), attachments: wire_attachments(attachments) };
            event("chunk", &sa_text::json::to_json(&chunk))
        }
        Update::Log { level, logger, data } => {
            let mut body =
                json!({ "level": level.as_str(), "data": data.to_value().unwrap_or_default() });
            if let Some(logger) = logger {
                body["logger"] = json!(logger);
            }
            event("log", &body.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use sa_core::RawJson;

    use super::*;

    #[test]
    fn progress_that_finds_no_room_is_left_out_and_a_chunk_is_not() {
        let news = Backlog::new(1, 1 << 20);
        let sink = Sink(news.clone());
        for step in 0..3_u8 {
            let progress = Update::Progress { progress: step.into(), total: None, message: None };
            assert!(sink.send(progress).is_ok());
        }
        let chunk = Update::Chunk { content: RawJson::empty_object(), attachments: Vec::new() };
        assert!(sink.send(chunk).is_err());
        assert_eq!(news.try_next(), None, "what waited for somebody who is too far behind is gone");
    }
}
