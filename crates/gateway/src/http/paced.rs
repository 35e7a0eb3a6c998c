//! Sends large responses at the pace of their readers.
//!
//! The connection copies all data that it receives, and is then done with the body. A large
//! response is therefore passed on in pieces. The rest of it waits here for a slow reader and takes
//! from the answer budget.
//!
//! A client that the budget refuses gets an error instead of the response. A stream waits for the
//! budget, because the data that it has sent cannot be taken back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use sa_core::{CallError, Principal};
use sa_limits::budget::{Holder, Permit, Refused, Share};
use sa_limits::offload;
use tokio::time::{Instant, Sleep, sleep};

use super::App;
use crate::metrics::Metrics;
use sa_http::CALL_ID;
use sa_http::Problem;

/// The size of a piece. Smaller data is not counted.
const PIECE: usize = offload::LARGE;

/// The timeout for a part of a stream to get its budget, and the interval of the attempts.
const TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Returns the response, in pieces if it may be large, or an error if the client's budget refuses
/// it.
///
/// `render` formats the error for the client.
pub(super) fn paced(
    app: &App,
    principal: Option<&Principal>,
    asked: &Method,
    response: Response,
    render: impl FnOnce(Problem) -> Response,
) -> Response {
    let exact = response.body().size_hint().exact();
    if exact.is_some_and(|bytes| bytes <= PIECE as u64) {
        return response;
    }
    // Embedded files use no additional memory, and every client may request them.
    let holder = || principal.map_or_else(Holder::anonymous, Principal::holder);
    let share = response
        .extensions()
        .get::<Embedded>()
        .is_none()
        .then(|| app.budgets.answers.share(&holder()));
    let held = match share.as_ref().zip(exact) {
        Some((share, bytes)) => match enter(share, usize::try_from(bytes).unwrap_or(usize::MAX)) {
            Ok(held) => Some(held),
            Err(refused) => {
                app.metrics.refused("http", "no_room");
                return no_room(asked, &response, refused, render);
            }
        },
        None => None,
    };
    let metrics = Arc::clone(&app.metrics);
    response.map(|body| {
        Body::new(Paced { body, rest: Bytes::new(), held, share, waits: None, metrics })
    })
}

/// Marks a response that is embedded in the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Embedded;

/// Takes a response from the budget. A single response always fits, because its reader asked for
/// it.
fn enter(share: &Share, bytes: usize) -> Result<Permit, Refused> {
    share.acquire(bytes.min(share.largest()))
}

/// Returns the error that replaces a refused response.
///
/// The request has been carried out by then, and a call is recorded with its outcome. A request
/// that changed something is not answered with 429, because clients would send it again.
fn no_room(
    asked: &Method,
    answer: &Response,
    refused: Refused,
    render: impl FnOnce(Problem) -> Response,
) -> Response {
    let problem = if asked.is_safe() {
        Problem::from(&CallError::from(refused))
    } else {
        let what = format!(
            "the request was processed, but there is no budget for its response: {}",
            refused.message
        );
        let after = "it may have had an effect; `GET /v1/calls` shows the outcomes of calls; repeat a call with the \
                     same idempotency_key to get its result";
        Problem::new(503, "overloaded", what).hint(format!("{after}; {}", refused.hint))
    };
    let call = answer.headers().get(CALL_ID);
    let id = call.and_then(|id| id.to_str().ok()?.parse().ok());
    let mut response = render(match id {
        Some(id) => problem.of_call(id),
        None => problem,
    });
    call.cloned().map(|id| response.headers_mut().insert(CALL_ID, id));
    response
}

struct Paced {
    body: Body,
    /// The rest of a part that is passed on in pieces, and its permit.
    rest: Bytes,
    held: Option<Permit>,
    /// `None` if the response takes no budget.
    share: Option<Share>,
    /// Set while a part waits for the budget.
    waits: Option<Waits>,
    metrics: Arc<Metrics>,
}

struct Waits {
    until: Instant,
    look: Pin<Box<Sleep>>,
}

impl Waits {
    fn new() -> Self {
        Self { until: Instant::now() + TIMEOUT, look: Box::pin(sleep(LOOK_AGAIN)) }
    }
}

impl Paced {
    /// Waits until the budget has space for the current part. Returns `false` after the timeout.
    ///
    /// Other responses return their budget sooner or later, and the reader of a stream waits
    /// anyway. Meanwhile the updates of its call are queued within their own limit.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(share) = &self.share else { return Poll::Ready(true) };
        while self.held.is_none() {
            self.held = enter(share, self.rest.len()).ok();
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

/// The error that ends a stream in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has no budget for a large part of this response at the moment")]
struct NoRoom;

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
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
    //! Rule: a response is unchanged, and counts until its last piece has been passed on.

    use axum::BoxError;
    use axum::response::IntoResponse;
    use http_body_util::BodyExt as _;
    use sa_limits::budget::{Limit, SharedBudget};

    use super::*;

    /// Returns a budget in which a holder that is no operator can take at most `largest` bytes.
    fn budget(largest: usize) -> Arc<SharedBudget> {
        let total = (largest..=2 * largest).find(|total| total - total / 16 == largest).unwrap();
        SharedBudget::new(Limit {
            name: "answers",
            what: "bytes",
            key: "limits.answer_bytes",
            remedy: "read",
            total,
        })
    }

    fn of(body: Body, held: Option<usize>, max: usize) -> Paced {
        let share = budget(max).share(&Holder::named("a"));
        let held = held.map(|bytes| share.acquire(bytes).unwrap());
        Paced {
            body,
            rest: Bytes::new(),
            held,
            share: Some(share),
            waits: None,
            metrics: Arc::default(),
        }
    }

    fn count(body: &Paced) -> usize {
        body.share.as_ref().map_or(0, |share| share.empty().budget().used())
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
    async fn a_stream_takes_room_for_one_large_part_at_a_time_waits_for_it_and_ends_where_there_is_none()
     {
        let parts = [10, 9 * PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE, 10]
            .map(|bytes| Ok::<_, BoxError>(Bytes::from(vec![b'x'; bytes])));
        let mut body = of(Body::from_stream(futures_util::stream::iter(parts)), None, 2 * PIECE);
        let mut came = Vec::new();
        for _ in 0..12 {
            let piece = next(&mut body).await.unwrap().unwrap();
            came.push((piece.len(), count(&body)));
        }
        // A part that is larger than the budget takes all of it.
        assert_eq!(came[..9], [&[(10, 0)][..], &[(PIECE, 2 * PIECE); 8]].concat());
        assert_eq!(came[9..], [(PIECE, 0), (PIECE, PIECE + 1), (1, 0)]);
        let budget = Arc::clone(body.share.as_ref().unwrap().empty().budget());
        let other = budget.acquire(&Holder::named("b"), 1).unwrap();
        let leaves = async {
            sleep(TIMEOUT / 2).await;
            drop(other);
        };
        let (piece, ()) = tokio::join!(next(&mut body), leaves);
        assert_eq!(
            (piece.unwrap().unwrap().len(), next(&mut body).await.unwrap().unwrap().len()),
            (PIECE, PIECE)
        );
        let _other = budget.acquire(&Holder::named("b"), 1).unwrap();
        assert!(next(&mut body).await.unwrap().unwrap_err().is::<NoRoom>());
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn who_leaves_gives_the_room_back() {
        let mut body = of(Body::from(vec![0; 3 * PIECE]), Some(3 * PIECE), 3 * PIECE);
        let (_, budget) =
            (next(&mut body).await, Arc::clone(body.share.as_ref().unwrap().empty().budget()));
        assert_eq!(budget.used(), 3 * PIECE);
        drop(body);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn what_was_done_and_has_no_room_for_its_answer_is_not_to_be_repeated() {
        let id = sa_core::CallId::new();
        let refused = budget(15).acquire(&Holder::named("a"), 16).unwrap_err();
        for (method, call, retryable) in [
            (Method::GET, None, true),
            (Method::POST, None, false),
            (Method::POST, Some(id.to_string()), false),
        ] {
            let mut answer = Response::new(Body::empty());
            let header = call.as_ref().map(|id| id.parse().unwrap());
            header.map(|id| answer.headers_mut().insert(CALL_ID, id));
            let refusal = no_room(&method, &answer, refused.clone(), IntoResponse::into_response);
            assert_eq!(refusal.headers().contains_key("retry-after"), retryable);
            let status = if retryable { 429 } else { 503 };
            assert_eq!(
                (refusal.status().as_u16(), refusal.headers().get(CALL_ID)),
                (status, answer.headers().get(CALL_ID))
            );
            let body = refusal.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(
                (&body["kind"], &body["retryable"]),
                (&"overloaded".into(), &retryable.into())
            );
            assert_eq!(body["call_id"].as_str(), call.as_deref());
        }
    }
}
