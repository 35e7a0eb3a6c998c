//! Reads request bodies, bounded in size, in time, and by a budget that all bodies share.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRef, FromRequest, Request};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use sa_core::CallError;
use sa_limits::budget::{Holder, Permit, STEP, SharedBudget};
use sa_limits::offload;
use sa_text::json::{check_parsed_bytes, parsed_bytes};

use crate::{Http, Identity, Problem};

/// The timeout for a whole request body. A slow body would otherwise hold its connection forever.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The complete body of a request.
#[derive(Debug)]
pub struct Payload(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Payload
where
    Http: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let http = Http::from_ref(state);
        let identity = request.extensions().get::<Identity>();
        let holder =
            identity.map_or_else(Holder::anonymous, |identity| identity.principal.holder());
        whole(&http, &holder, request.into_body(), http.max_body_bytes).await.map(Self)
    }
}

/// Reads a body to its end, within the size limit, the timeout and the sender's budget.
///
/// A large body takes from the budget as long as any part of it is in memory.
pub async fn whole<B>(http: &Http, holder: &Holder, body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    whole_in((&http.requests, holder), body, max).await.inspect_err(|problem| {
        if problem.is_overload() {
            http.refused("no_room");
        }
    })
}

/// Takes the parsed size of a body from the budget. Each parsed value takes a hundred bytes or
/// more.
pub fn count_tree(http: &Http, holder: &Holder, body: &[u8]) -> Result<Option<Permit>, Problem> {
    if body.len() < offload::LARGE {
        return Ok(None);
    }
    check_parsed_bytes(body).map_err(|error| {
        http.refused("too_large");
        Problem::new(413, "too_large", format!("the request body cannot be read: {error}"))
            .hint("send fewer or larger values")
    })?;
    let budget = &http.requests;
    let counted = budget
        .acquire(holder, tree_bytes(body, budget.largest()))
        .inspect_err(|_| http.refused("no_room"));
    counted.map(Some).map_err(|refused| Problem::from(&CallError::from(refused)))
}

/// Returns the approximate size of the parsed body. A single request always fits, together with its
/// body.
fn tree_bytes(body: &[u8], largest: usize) -> usize {
    parsed_bytes(body).saturating_sub(body.len()).min(largest.saturating_sub(body.len()))
}

async fn whole_in<B>(
    budget: (&Arc<SharedBudget>, &Holder),
    body: B,
    max: usize,
) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let late = || {
        Problem::new(
            408,
            "timeout",
            format!("the request body did not arrive within {} s", TIMEOUT.as_secs()),
        )
    };
    let mut reading = pin!(read(budget, body, max));
    // A small body arrives with the request head and needs no timer.
    match futures_util::poll!(&mut reading) {
        Poll::Ready(body) => body,
        Poll::Pending => {
            tokio::time::timeout(TIMEOUT, reading).await.unwrap_or_else(|_| Err(late()))
        }
    }
}

async fn read<B>(
    (budget, holder): (&Arc<SharedBudget>, &Holder),
    body: B,
    max: usize,
) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let too_large = || {
        Problem::new(413, "too_large", format!("the request body is larger than {max} bytes"))
            .hint("send less, or raise limits.max_body_bytes")
    };
    // If the length is known to exceed the limit, nothing is read. Reading would answer `Expect:
    // 100-continue`, and the client would send the whole body.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let body = pin!(body);
    let mut body = Limited::new(body, max);
    // Most bodies arrive in one piece, which is used without a copy.
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    let mut permit: Option<Permit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                too_large()
            } else {
                Problem::bad_request(format!("the request body cannot be read: {error}"))
            }
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = first.len() + all.len() + data.len();
        if length >= STEP {
            let permit = permit.get_or_insert_with(|| budget.empty(holder));
            permit
                .resize_in_steps(length)
                .map_err(|refused| Problem::from(&CallError::from(refused)))?;
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    let body = if all.is_empty() { first } else { all.freeze() };
    Ok(match permit {
        None => body,
        Some(permit) => Bytes::from_owner(Counted { body, _permit: permit }),
    })
}

/// A large body. Its budget is returned when the last part of it is dropped.
struct Counted {
    body: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::StreamExt as _;
    use sa_limits::budget::Limit;

    use super::*;

    const PIECE: usize = offload::LARGE;

    fn budget() -> Arc<SharedBudget> {
        let limit = Limit {
            name: "r",
            what: "bytes",
            key: "limits.request_bytes",
            remedy: "wait",
            total: 16 * PIECE,
        };
        SharedBudget::new(limit)
    }

    #[tokio::test]
    async fn large_bodies_take_from_the_budget_of_their_sender_for_as_long_as_they_live() {
        let budget = budget();
        let (greedy, other) = (Holder::named("greedy"), Holder::named("other"));
        let begun = |pieces: usize| {
            let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE]));
            futures_util::stream::iter(std::iter::repeat_with(piece).take(pieces))
        };
        let unfinished = Body::from_stream(begun(8).chain(futures_util::stream::pending()));
        let mut first = Box::pin(whole_in((&budget, &greedy), unfinished, usize::MAX));
        assert!(futures_util::poll!(&mut first).is_pending());
        let second =
            whole_in((&budget, &greedy), Body::from_stream(begun(4)), usize::MAX).await.unwrap();
        assert_eq!(
            (second.len(), budget.used()),
            (4 * PIECE, 12 * PIECE),
            "it counts until it is dropped"
        );
        let problem = whole_in((&budget, &greedy), Body::from_stream(begun(1)), usize::MAX)
            .await
            .unwrap_err();
        assert_eq!((problem.status(), problem.passes_soon()), (429, true));
        assert!(problem.advice().is_some_and(|hint| hint.contains("limits.request_bytes")));
        let modest =
            whole_in((&budget, &other), Body::from_stream(begun(2)), usize::MAX).await.unwrap();
        assert_eq!(budget.used(), 14 * PIECE);
        let part = second.slice(..1);
        drop((first, second, modest));
        assert_eq!(budget.used(), 4 * PIECE, "a part keeps all of it");
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_body_is_read_whole_in_however_many_pieces_it_comes() {
        for pieces in [&["abc"][..], &["a", "", "b", "c"], &["", "ab", "c"], &[], &[""]] {
            let items = pieces
                .iter()
                .map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
            let body = Body::from_stream(futures_util::stream::iter(items));
            assert_eq!(
                whole_in((&budget(), &Holder::anonymous()), body, 3).await.unwrap(),
                pieces.concat().as_bytes(),
                "{pieces:?}"
            );
        }
        let items =
            ["ab", "cd"].map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        let problem = whole_in(
            (&budget(), &Holder::anonymous()),
            Body::from_stream(futures_util::stream::iter(items)),
            3,
        )
        .await
        .unwrap_err();
        assert!(sa_text::json::to_json(&problem).contains("413"));
    }

    #[tokio::test]
    async fn a_body_by_itself_fits_with_its_tree_however_many_values_it_has() {
        let (budget, holder) = (budget(), Holder::named("a"));
        let text = format!("[{}0]", "0,".repeat(PIECE / 2));
        let body = whole_in((&budget, &holder), Body::from(text), usize::MAX).await.unwrap();
        let tree = tree_bytes(&body, budget.largest());
        assert!(tree > 10 * PIECE && budget.acquire(&holder, tree).is_ok(), "{tree}");
        assert_eq!(tree_bytes(b"[1,2,3]", budget.largest()), parsed_bytes(b"[1,2,3]") - 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body =
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = whole_in((&budget(), &Holder::anonymous()), body, 10).await.unwrap_err();
        assert!(sa_text::json::to_json(&problem).contains("408"));
    }
}
