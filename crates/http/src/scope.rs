//! Scopes that a request names.

use futures_util::future::BoxFuture;
use sa_core::Scope;
use sa_core::audit::MAX_SUBJECT;
use sa_core::store::StoreError;
use sa_text::printable;

use crate::Problem;

/// Knows the channels that exist.
pub trait KnownChannels: std::fmt::Debug + Send + Sync + 'static {
    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;
}

/// Returns the error for a scope that does not exist, or that the token may not use.
pub fn no_such_scope(scope: &Scope) -> Problem {
    let problem = |what: &str, name: &str| {
        let name: String = name.chars().take(MAX_SUBJECT).collect();
        Problem::new(
            404,
            "not_found",
            format!("there is no {what} \"{}\" that this token may use", printable(&name)),
        )
    };
    match scope {
        Scope::Session(id) => problem("open session", id)
            .hint("run `switchboard sessions` to list them; agents call session_list"),
        Scope::Channel(name) => problem("channel", name).hint("`GET /v1/channels` lists them"),
        Scope::User(name) => problem("user", name),
        Scope::Everyone => problem("scope", ""),
    }
}
