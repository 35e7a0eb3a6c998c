//! Answers that are large, at the pace of whoever reads them.
//!
//! The connection copies what it is handed, all of it, and is then done with the body. So a large answer is handed over in
//! pieces: what waits for a slow reader is still here, and shares a room with all other large answers. Who finds that full
//! gets a few words in place of the answer. It is not the room of what is still coming in: readers who do not read must not
//! close the connections of nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use sa_core::aside;
use sa_core::limits::{Ceiling, Entered};

use super::tools::CALL_ID;
use super::{App, Problem};
use crate::metrics::Metrics;

/// What is handed over at a time. Nothing that is no larger is counted.
const PIECE: usize = aside::LARGE;

/// The same answer, in pieces if it is large or may turn out to be; or why there is no room for it.
pub(super) fn paced(app: &App, asked: &Method, response: Response) -> Response {
    let exact = response.body().size_hint().exact();
    if exact.is_some_and(|bytes| bytes <= PIECE as u64) {
        return response;
    }
    let held = match exact.map(|bytes| enter(&app.answers_room, usize::try_from(bytes).unwrap_or(usize::MAX))) {
        Some(None) => {
            app.metrics.refused("http", "no_room");
            return no_room(asked, &response);
        }
        held => held.flatten(),
    };
    let (room, metrics) = (Arc::clone(&app.answers_room), Arc::clone(&app.metrics));
    response.map(|body| Body::new(Paced { body, rest: Bytes::new(), held, room, metrics }))
}

/// Takes room for so much. One that is by itself always fits: it is what its reader asked for.
fn enter(room: &Arc<Ceiling>, bytes: usize) -> Option<Entered> {
    room.enter(bytes.min(room.max()))
}

/// What is said in place of an answer. What was asked for has been done by then, and a call is recorded with what became of
/// it.
fn no_room(asked: &Method, answer: &Response) -> Response {
    let problem = if asked.is_safe() {
        Problem::new(503, "overloaded", "the gateway has no room for this answer at the moment")
            .hint("try again later, or ask for less; an operator can make room with limits.pending_bytes")
            .retryable()
    } else {
        let what = "the request was carried out, and the gateway has no room for its answer at the moment";
        Problem::new(503, "overloaded", what).hint(
            "it may have had an effect: GET /v1/calls tells how calls ended, and one that is made again with the same \
             idempotency_key gets its result; an operator can make room with limits.pending_bytes",
        )
    };
    let call = answer.headers().get(CALL_ID);
    let id = call.and_then(|id| id.to_str().ok()?.parse().ok());
    let mut response = match id {
        Some(id) => problem.of_call(id).into_response(),
        None => problem.into_response(),
    };
    call.cloned().map(|id| response.headers_mut().insert(CALL_ID, id));
    response
}

struct Paced {
    body: Body,
    /// What is left of a part that is handed over in pieces, and the room that it takes.
    rest: Bytes,
    held: Option<Entered>,
    room: Arc<Ceiling>,
    metrics: Arc<Metrics>,
}

/// Why a stream ends in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has no room for a large part of this answer at the moment")]
struct NoRoom;

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)?) else { return Poll::Ready(None) };
            let part = match frame.into_data() {
                Ok(part) if part.len() > PIECE => part,
                Ok(part) => return Poll::Ready(Some(Ok(Frame::data(part)))),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            if this.held.is_none() {
                this.held = enter(&this.room, part.len());
            }
            if this.held.is_none() {
                this.metrics.refused("http", "no_room");
                this.body = Body::empty();
                return Poll::Ready(Some(Err(NoRoom.into())));
            }
            this.rest = part;
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        if this.rest.is_empty() {
            (this.rest, this.held) = (Bytes::new(), None);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut all = SizeHint::new();
        all.set_lower(rest + body.lower());
        if let Some(upper) = body.upper() {
            all.set_upper(rest + upper);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    //! Rule: an answer is what it was, and takes room until the last of it has been handed over.

    use axum::BoxError;
    use http_body_util::BodyExt as _;

    use super::*;

    fn of(body: Body, held: Option<usize>, max: usize) -> Paced {
        let room = Arc::new(Ceiling::new(max));
        let held = held.map(|bytes| room.enter(bytes).unwrap());
        Paced { body, rest: Bytes::new(), held, room, metrics: Arc::default() }
    }

    async fn next(body: &mut Paced) -> Option<Result<Bytes, BoxError>> {
        body.frame().await.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn a_large_answer_takes_room_until_its_last_piece_and_is_no_other() {
        let text: Vec<u8> = (0..=255).cycle().take(2 * PIECE + 1).collect();
        let mut body = of(Body::from(text.clone()), Some(text.len()), text.len());
        let mut came = Vec::new();
        while came.len() < text.len() {
            assert_eq!((body.room.count(), body.is_end_stream()), (text.len(), false));
            assert_eq!(body.size_hint().exact(), Some((text.len() - came.len()) as u64));
            came.extend(next(&mut body).await.unwrap().unwrap());
        }
        assert_eq!((body.room.count(), body.is_end_stream()), (0, true));
        assert!(next(&mut body).await.is_none() && came == text);
    }

    #[tokio::test]
    async fn a_stream_takes_room_for_one_large_part_at_a_time_and_ends_where_there_is_none() {
        let parts =
            [10, 9 * PIECE, PIECE + 1, 2 * PIECE, 10].map(|bytes| Ok::<_, BoxError>(Bytes::from(vec![b'x'; bytes])));
        let mut body = of(Body::from_stream(futures_util::stream::iter(parts)), None, 2 * PIECE);
        let mut came = Vec::new();
        for _ in 0..12 {
            let piece = next(&mut body).await.unwrap().unwrap();
            came.push((piece.len(), body.room.count()));
        }
        // One that is larger than the room takes all of it.
        assert_eq!(came[..9], [&[(10, 0)][..], &[(PIECE, 2 * PIECE); 8]].concat());
        assert_eq!(came[9..], [(PIECE, 0), (PIECE, PIECE + 1), (1, 0)]);
        let _other = body.room.enter(1).unwrap();
        assert!(next(&mut body).await.unwrap().unwrap_err().is::<NoRoom>());
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn who_leaves_gives_the_room_back() {
        let mut body = of(Body::from(vec![0; 3 * PIECE]), Some(3 * PIECE), 3 * PIECE);
        let (_, room) = (next(&mut body).await, Arc::clone(&body.room));
        assert_eq!(room.count(), 3 * PIECE);
        drop(body);
        assert_eq!(room.count(), 0);
    }

    #[tokio::test]
    async fn what_was_done_and_has_no_room_for_its_answer_is_not_to_be_repeated() {
        let id = sa_core::CallId::new();
        for (method, call, retryable) in
            [(Method::GET, None, true), (Method::POST, None, false), (Method::POST, Some(id.to_string()), false)]
        {
            let mut answer = Response::new(Body::empty());
            let header = call.as_ref().map(|id| id.parse().unwrap());
            header.map(|id| answer.headers_mut().insert(CALL_ID, id));
            let told = no_room(&method, &answer);
            assert_eq!((told.status().as_u16(), told.headers().get(CALL_ID)), (503, answer.headers().get(CALL_ID)));
            let body = told.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&body["kind"], &body["retryable"]), (&"overloaded".into(), &retryable.into()));
            assert_eq!(body["call_id"].as_str(), call.as_deref());
        }
    }
}
