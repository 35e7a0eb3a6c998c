//! Reading a request's body: bounded in size and in time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
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
    let body = Limited::new(std::pin::pin!(body), max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Problem::new(413, "too_large", format!("the body is larger than {max} bytes"))
                .hint("send less, or raise limits.max_body_bytes")
        } else {
            Problem::bad_request(format!("the body cannot be read: {error}"))
        }
    })?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = whole(body, 10).await.unwrap_err();
        assert!(crate::json::to_json(&problem).contains("408"));
    }
}
