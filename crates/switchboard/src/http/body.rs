//! Reading a request's body: bounded in size and in time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::{App, Problem};

/// How long a client may take for a whole body. One that trickles in would hold its connection for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request's whole body.
pub(super) struct Payload(pub(super) Bytes);

impl FromRequest<App> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let max = app.config.settings.limits.max_body_bytes;
        whole(request.into_body(), max).await.map(Self)
    }
}

/// Reads a body to its end, if that is neither too far nor too long in coming.
pub(super) async fn whole<B>(body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let late = || Problem::new(408, "timeout", format!("the body did not come within {} s", PATIENCE.as_secs()));
    let mut reading = pin!(read(body, max));
    // A small body is there with its head, and needs no clock.
    match futures_util::poll!(&mut reading) {
        Poll::Ready(body) => body,
        Poll::Pending => tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| Err(late())),
    }
}

async fn read<B>(body: B, max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let body = pin!(body);
    let mut body = Limited::new(body, max);
    // Most bodies come in one piece, which is then all of it.
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Problem::new(413, "too_large", format!("the body is larger than {max} bytes"))
                    .hint("send less, or raise limits.max_body_bytes")
            } else {
                Problem::bad_request(format!("the body cannot be read: {error}"))
            }
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_whole_in_however_many_pieces_it_comes() {
        for pieces in [&["abc"][..], &["a", "", "b", "c"], &["", "ab", "c"], &[], &[""]] {
            let items = pieces.iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
            let body = Body::from_stream(futures_util::stream::iter(items));
            assert_eq!(whole(body, 3).await.unwrap(), pieces.concat().as_bytes(), "{pieces:?}");
        }
        let items = ["ab", "cd"].map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        let problem = whole(Body::from_stream(futures_util::stream::iter(items)), 3).await.unwrap_err();
        assert!(crate::json::to_json(&problem).contains("413"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = whole(body, 10).await.unwrap_err();
        assert!(crate::json::to_json(&problem).contains("408"));
    }
}
