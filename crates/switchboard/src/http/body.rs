//! Reading a request's body: bounded in size and in time, and with all others that are still coming in.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use sa_core::limits::{Ceiling, Growing};

use super::{App, Problem};

/// How long a client may take for a whole body. One that trickles in would hold its connection for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request's whole body.
pub(super) struct Payload(pub(super) Bytes);

impl FromRequest<App> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let max = app.config.settings.limits.max_body_bytes;
        whole(app, request.into_body(), max).await.map(Self)
    }
}

/// Reads a body to its end, if that is neither too far nor too long in coming, and there is room for what has come.
pub(super) async fn whole<B>(app: &App, body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    whole_in(&app.rooms.from_callers, body, max).await.inspect_err(|problem| {
        if problem.is_overload() {
            app.metrics.refused("http", "no_room");
        }
    })
}

async fn whole_in<B>(room: &Arc<Ceiling>, body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let late = || Problem::new(408, "timeout", format!("the body did not come within {} s", PATIENCE.as_secs()));
    let mut reading = pin!(read(room, body, max));
    // A small body is there with its head, and needs no clock.
    match futures_util::poll!(&mut reading) {
        Poll::Ready(body) => body,
        Poll::Pending => tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| Err(late())),
    }
}

async fn read<B>(room: &Arc<Ceiling>, body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let too_large = || {
        Problem::new(413, "too_large", format!("the body is larger than {max} bytes"))
            .hint("send less, or raise limits.max_body_bytes")
    };
    // Where its length is known nothing of it is read: who asks first (`Expect: 100-continue`) would be told to send it all.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let body = pin!(body);
    let mut body = Limited::new(body, max);
    // Most bodies come in one piece, which is then all of it.
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    // Beside what has come of large messages on sockets.
    let mut room = Growing::new(Arc::clone(room));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                too_large()
            } else {
                Problem::bad_request(format!("the body cannot be read: {error}"))
            }
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if !room.keep(first.len() + all.len() + data.len()) {
            return Err(no_room());
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn no_room() -> Problem {
    Problem::new(503, "overloaded", "the gateway has no room for more large bodies at the moment")
        .hint("try again later; an operator can make room with limits.pending_bytes")
        .retryable()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::StreamExt as _;
    use sa_core::aside;

    use super::*;

    fn room() -> Arc<Ceiling> {
        Arc::new(Ceiling::new(3 * aside::LARGE))
    }

    #[tokio::test]
    async fn what_has_come_of_large_bodies_shares_a_room() {
        let room = room();
        let begun = |pieces: usize| {
            let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; aside::LARGE]));
            futures_util::stream::iter(std::iter::repeat_with(piece).take(pieces))
        };
        let unfinished = Body::from_stream(begun(2).chain(futures_util::stream::pending()));
        let mut first = Box::pin(whole_in(&room, unfinished, usize::MAX));
        assert!(futures_util::poll!(&mut first).is_pending());
        let problem = whole_in(&room, Body::from_stream(begun(2)), usize::MAX).await.unwrap_err();
        assert_eq!((problem.status(), room.count()), (503, 2 * aside::LARGE));
        assert_eq!(whole_in(&room, Body::from_stream(begun(1)), usize::MAX).await.unwrap().len(), aside::LARGE);
        drop(first);
        assert_eq!(whole_in(&room, Body::from_stream(begun(3)), usize::MAX).await.unwrap().len(), 3 * aside::LARGE);
        assert_eq!(room.count(), 0);
    }

    #[tokio::test]
    async fn a_body_is_read_whole_in_however_many_pieces_it_comes() {
        for pieces in [&["abc"][..], &["a", "", "b", "c"], &["", "ab", "c"], &[], &[""]] {
            let items = pieces.iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
            let body = Body::from_stream(futures_util::stream::iter(items));
            assert_eq!(whole_in(&room(), body, 3).await.unwrap(), pieces.concat().as_bytes(), "{pieces:?}");
        }
        let items = ["ab", "cd"].map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        let problem = whole_in(&room(), Body::from_stream(futures_util::stream::iter(items)), 3).await.unwrap_err();
        assert!(crate::json::to_json(&problem).contains("413"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = whole_in(&room(), body, 10).await.unwrap_err();
        assert!(crate::json::to_json(&problem).contains("408"));
    }
}
