//! The HTTP routes of upstream servers.

use sa_http::Problem;
use sa_text::printable;

use crate::ChangeError;

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = printable(&error.to_string()).into_owned();
        match error {
            ChangeError::Invalid(_) => Self::bad_request(detail),
            ChangeError::Exists(_) => {
                Self::new(409, "conflict", detail).hint("remove it first, or choose another name")
            }
            ChangeError::Configured(_) => Self::new(409, "conflict", detail),
            ChangeError::Taken(_) => Self::new(409, "conflict", detail).hint("choose another name"),
            ChangeError::Unknown(_) => {
                Self::new(404, "not_found", detail).hint("run `switchboard upstream list`")
            }
            ChangeError::Refused(_) => Self::new(502, "failed", detail),
            ChangeError::Store(error) => error.into(),
        }
    }
}
