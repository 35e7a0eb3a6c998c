//! The parts of a request that handlers read.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use sa_text::json::object;
use sa_text::{excerpt, plain};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Problem;

/// The maximum length of the position in an error message.
const MAX_PLACE: usize = 100;

/// The variable part of a route's path. Invalid UTF-8 is reported as a [`Problem`].
#[derive(Debug)]
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

/// The query of a request. An invalid query is reported as a [`Problem`].
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

/// The hint for a client, such as curl, that sends a form or an empty body.
const SEND_JSON: &str = "send one JSON object with \"Content-Type: application/json\"; for a call, send \
{\"args\":{…}} with the tool's arguments";

/// Reads a request body, which must be a JSON object.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    object(body).map_err(|error| {
        if error.is_syntax() || error.is_eof() {
            let why = if body.is_empty() { "it is empty".to_owned() } else { error.to_string() };
            return Problem::bad_request(format!("the request body is not valid JSON: {why}"))
                .hint(SEND_JSON);
        }
        if !body.trim_ascii_start().starts_with(b"{") {
            return Problem::bad_request("the request body must be a JSON object").hint(SEND_JSON);
        }
        let place = place::<T>(body).map(|place| format!("{place}: ")).unwrap_or_default();
        let problem = Problem::bad_request(format!(
            "the request body is invalid: {place}{}",
            plain(&error.to_string())
        ));
        if error.to_string().contains("unknown field") {
            return problem.hint("put the tool's arguments into \"args\"");
        }
        problem
    })
}

/// Returns the position of the invalid part of a body.
fn place<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<String> {
    let read =
        serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(body));
    let error = read.err()?;
    let of_kind = error.inner().to_string().starts_with("invalid ");
    Some(error.path().to_string())
        .filter(|place| of_kind && place != ".")
        .map(|place| excerpt(MAX_PLACE, &place).into_owned())
}
