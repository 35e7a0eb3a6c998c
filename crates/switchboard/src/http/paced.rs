//! Answers that are large, at the pace of whoever reads them.
//!
//! The connection copies what it is handed, all of it, and is then done with the body. So a large answer is handed over in
//! pieces: what waits for a slow reader is still here, and shares a room with all other large answers. Who finds that full
//! gets a few words in place of the answer; a stream waits a while for room, since what it has said cannot be unsaid. It is not the room of what is still coming in: readers who do not read must not
//! close the connections of nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use sa_core::aside;
use sa_core::limits::{Ceiling, Entered};
use tokio::time::{Instant, Sleep, sleep};

use super::tools::CALL_ID;
use super::{App, Problem};
use crate::metrics::Metrics;

/// What is handed over at a time. Nothing that is no larger is counted.
const PIECE: usize = aside::LARGE;

/// How long a part of a stream waits for room, and how often it looks for some.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The same answer, in pieces if it is large or may turn out to be; or why there is no room for it.
/// `told` puts that into the words of whoever asked.
pub(super) fn paced(app: &App, asked: &Method, response: Response, told: impl FnOnce(Problem) -> Response) -> Response {
    let exact = response.body().size_hint().exact();
    if exact.is_some_and(|bytes| bytes <= PIECE as u64) {
        return response;
    }
    // What is part of the program takes no memory of its own, and everybody may ask for it.
    let room = response.extensions().get::<Embedded>().is_none().then(|| Arc::clone(&app.rooms.answers));
    let held =
        match room.as_ref().zip(exact).map(|(room, bytes)| enter(room, usize::try_from(bytes).unwrap_or(usize::MAX))) {
            Some(None) => {
                app.metrics.refused("http", "no_room");
                return no_room(asked, &response, told);
            }
            held => held.flatten(),
        };
    let metrics = Arc::clone(&app.metrics);
    response.map(|body| Body::new(Paced { body, rest: Bytes::new(), held, room, waits: None, metrics }))
}

/// Says of an answer that it is part of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Embedded;

/// Takes room for so much. One that is by itself always fits: it is what its reader asked for.
fn enter(room: &Arc<Ceiling>, bytes: usize) -> Option<Entered> {
    room.enter(bytes.min(room.max()))
}

/// What is said in place of an answer. What was asked for has been done by then, and a call is recorded with what became of
/// it.
fn no_room(asked: &Method, answer: &Response, told: impl FnOnce(Problem) -> Response) -> Response {
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
    let mut response = told(match id {
        Some(id) => problem.of_call(id),
        None => problem,
    });
    call.cloned().map(|id| response.headers_mut().insert(CALL_ID, id));
    response
}

struct Paced {
    body: Body,
    /// What is left of a part that is handed over in pieces, and the room that it takes.
    rest: Bytes,
    held: Option<Entered>,
    /// Absent for what takes none.
    room: Option<Arc<Ceiling>>,
    /// There while a part waits for room.
    waits: Option<Waits>,
    metrics: Arc<Metrics>,
}

struct Waits {
    until: Instant,
    look: Pin<Box<Sleep>>,
}

impl Waits {
    fn new() -> Self {
        Self { until: Instant::now() + PATIENCE, look: Box::pin(sleep(LOOK_AGAIN)) }
    }
}

impl Paced {
    /// Whether there is room for what is to be handed over. Others leave theirs sooner or later, and whoever reads a stream waits
    /// for it anyway; what its call has to say meanwhile waits within its own bound.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(room) = &self.room else { return Poll::Ready(true) };
        while self.held.is_none() {
            self.held = enter(room, self.rest.len());
            if self.held.is_some() {
                break;
            }
            let waits = self.waits.get_or_insert_with(Waits::new);
            if waits.until <= Instant::now() {
                return Poll::Ready(false);
            }
            ready!(waits.look.as_mut().poll(cx));
            waits.look.as_mut().reset(Instant::now() + LOOK_AGAIN);
        }
        self.waits = None;
        Poll::Ready(true)
    }
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
            this.rest = part;
        }
        if !ready!(this.poll_room(cx)) {
            this.metrics.refused("http", "no_room");
            (this.body, this.rest) = (Body::empty(), Bytes::new());
            return Poll::Ready(Some(Err(NoRoom.into())));
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
    use axum::response::IntoResponse;
    use http_body_util::BodyExt as _;

    use super::*;

    fn of(body: Body, held: Option<usize>, max: usize) -> Paced {
        let room = Arc::new(Ceiling::new(max));
        let held = held.map(|bytes| room.enter(bytes).unwrap());
        Paced { body, rest: Bytes::new(), held, room: Some(room), waits: None, metrics: Arc::default() }
    }

    fn count(body: &Paced) -> usize {
        body.room.as_ref().map_or(0, |room| room.count())
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
            assert_eq!((count(&body), body.is_end_stream()), (text.len(), false));
            assert_eq!(body.size_hint().exact(), Some((text.len() - came.len()) as u64));
            came.extend(next(&mut body).await.unwrap().unwrap());
        }
        assert_eq!((count(&body), body.is_end_stream()), (0, true));
        assert!(next(&mut body).await.is_none() && came == text);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_takes_room_for_one_large_part_at_a_time_waits_for_it_and_ends_where_there_is_none() {
        let parts = [10, 9 * PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE, 10]
            .map(|bytes| Ok::<_, BoxError>(Bytes::from(vec![b'x'; bytes])));
        let mut body = of(Body::from_stream(futures_util::stream::iter(parts)), None, 2 * PIECE);
        let mut came = Vec::new();
        for _ in 0..12 {
            let piece = next(&mut body).await.unwrap().unwrap();
            came.push((piece.len(), count(&body)));
        }
        // One that is larger than the room takes all of it.
        assert_eq!(came[..9], [&[(10, 0)][..], &[(PIECE, 2 * PIECE); 8]].concat());
        assert_eq!(came[9..], [(PIECE, 0), (PIECE, PIECE + 1), (1, 0)]);
        let room = Arc::clone(body.room.as_ref().unwrap());
        let other = room.enter(1).unwrap();
        let leaves = async {
            sleep(PATIENCE / 2).await;
            drop(other);
        };
        let (piece, ()) = tokio::join!(next(&mut body), leaves);
        assert_eq!((piece.unwrap().unwrap().len(), next(&mut body).await.unwrap().unwrap().len()), (PIECE, PIECE));
        let _other = room.enter(1).unwrap();
        assert!(next(&mut body).await.unwrap().unwrap_err().is::<NoRoom>());
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn who_leaves_gives_the_room_back() {
        let mut body = of(Body::from(vec![0; 3 * PIECE]), Some(3 * PIECE), 3 * PIECE);
        let (_, room) = (next(&mut body).await, Arc::clone(body.room.as_ref().unwrap()));
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
            let told = no_room(&method, &answer, IntoResponse::into_response);
            assert_eq!(told.headers().contains_key("retry-after"), retryable);
            assert_eq!((told.status().as_u16(), told.headers().get(CALL_ID)), (503, answer.headers().get(CALL_ID)));
            let body = told.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&body["kind"], &body["retryable"]), (&"overloaded".into(), &retryable.into()));
            assert_eq!(body["call_id"].as_str(), call.as_deref());
        }
    }
}
