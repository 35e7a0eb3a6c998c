//! The HTTP routes of plugins.

use sa_http::Problem;
use sa_text::printable;

use crate::ChangeError;
use crate::settings::SettingsError;

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = printable(&error.to_string()).into_owned();
        match error {
            ChangeError::Invalid(_) => {
                Self::bad_request(detail).hint("run `switchboard plugin check` to see the problems")
            }
            ChangeError::Index(_) => Self::bad_request(detail)
                .hint("add one of them by the URL of its manifest; --replace replaces an installed plugin"),
            ChangeError::NoSource(_) | ChangeError::Full | ChangeError::Private(_) => Self::bad_request(detail),
            ChangeError::Taken(_) => Self::new(409, "conflict", detail)
                .hint("change the identifier in the manifest, or remove the other one first"),
            ChangeError::Exists(_) => Self::new(409, "conflict", detail).hint("remove it first, or add --replace"),
            ChangeError::NothingHeldBack(_) | ChangeError::Moved(_) => Self::new(409, "conflict", detail),
            ChangeError::Unknown(_) => Self::new(404, "not_found", detail).hint("run `switchboard plugin list`"),
            ChangeError::Fetch(error) if error.is_forbidden() => Self::new(502, "failed", detail)
                .hint("if the server is your own, allow this plugin to reach it with: --allow-private HOST:PORT"),
            ChangeError::Fetch(_) => {
                Self::new(502, "failed", detail).hint("check the address, and that its server is running")
            }
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Invalid(why) => {
                Self::new(422, "invalid_args", printable(&why).into_owned())
                    .hint("see the plugin's \"settings\" in `GET /v1/plugins`")
            }
            SettingsError::Vault(error) => {
                Self::new(503, "store", printable(&error.to_string()).into_owned())
            }
            SettingsError::Store(error) => error.into(),
        }
    }
}
