//! Logins in progress: a browser was sent to an authorization server, and returns with a code.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rmcp::transport::auth::AuthorizationSession;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::errors;

/// How long a login may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of logins in progress.
const MAX_PENDING: usize = 64;
/// The maximum length of an authorization code.
const MAX_TEXT: usize = 8_192;

/// A login that has begun.
#[derive(Debug, Clone)]
pub struct StartedLogin {
    /// Identifies the login in later status requests.
    pub id: String,
    /// The address that the user must open.
    pub url: String,
    pub expires_in: Duration,
}

/// The state of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Waiting,
    Done,
    Failed(String),
}

/// The query parameters of the redirect from an authorization server.
#[derive(Debug, Default, serde::Deserialize)]
pub struct Callback {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub state: String,
    pub iss: Option<String>,
    pub error: Option<String>,
    pub error_description: Option<String>,
}

/// All logins in progress, by the `state` parameter of the redirect. Only the authorization
/// server and the client that began the login know it. It can be used once.
#[derive(Default)]
pub(crate) struct Logins {
    pending: Mutex<HashMap<String, Pending>>,
    outcomes: Mutex<HashMap<String, Outcome>>,
}

struct Pending {
    server: String,
    session: AuthorizationSession,
    began: Instant,
    progress: watch::Sender<Progress>,
}

/// The latest login of a server. Its state can be requested after it has ended.
struct Outcome {
    id: String,
    began: Instant,
    progress: watch::Receiver<Progress>,
}

/// A login after the redirect with its `state`. The other parameters are not checked yet.
pub(crate) struct Returned {
    pub(crate) server: String,
    session: AuthorizationSession,
    progress: watch::Sender<Progress>,
}

impl Logins {
    /// Registers a login. Replaces a login of the same server that is in progress.
    pub(crate) fn begin(
        &self,
        server: &str,
        session: AuthorizationSession,
    ) -> Result<StartedLogin, String> {
        let url = session.get_authorization_url().to_owned();
        let address = url::Url::parse(&url).map_err(|error| error.to_string())?;
        // The authorization server's address may already contain a `state`, which others could
        // know.
        let mut states = address
            .query_pairs()
            .filter(|(name, _)| name == "state")
            .map(|(_, state)| state.into_owned());
        let (Some(state), None) = (states.next(), states.next()) else {
            return Err(
                "the authority's URL already has a state parameter, so it cannot be used".into()
            );
        };
        let (progress, seen) = watch::channel(Progress::Waiting);
        let (began, id) = (Instant::now(), format!("{:032x}", rand::random::<u128>()));
        let mut pending = self.pending();
        pending.retain(|_, login| login.began.elapsed() < TIMEOUT && login.server != server);
        if pending.len() >= MAX_PENDING {
            return Err(format!(
                "{MAX_PENDING} logins are under way, which is the limit; finish one of them"
            ));
        }
        pending.insert(state, Pending { server: server.to_owned(), session, began, progress });
        self.outcomes()
            .insert(server.to_owned(), Outcome { id: id.clone(), began, progress: seen });
        Ok(StartedLogin { id, url, expires_in: TIMEOUT })
    }

    /// Removes and returns the login of this server with this `state`.
    ///
    /// Each server has its own redirect address. This prevents a mix-up attack: a malicious
    /// authorization server could forward the browser to another one, to obtain that one's code.
    /// The browser would then return to the other server's address.
    pub(crate) fn take(&self, server: &str, state: &str) -> Option<Returned> {
        let mut pending = self.pending();
        pending.get(state).filter(|login| login.server == server)?;
        let Pending { server, session, began, progress } = pending.remove(state)?;
        drop(pending);
        if began.elapsed() >= TIMEOUT {
            progress.send_replace(Progress::Failed(LOGIN_EXPIRED.into()));
            return None;
        }
        Some(Returned { server, session, progress })
    }

    /// Waits for a login to end, at most for this timeout. Returns `None` if the login is
    /// unknown.
    pub(crate) async fn wait(&self, server: &str, id: &str, timeout: Duration) -> Option<Progress> {
        let (began, mut progress) = {
            let outcomes = self.outcomes();
            let outcome = outcomes.get(server).filter(|outcome| outcome.id == id)?;
            (outcome.began, outcome.progress.clone())
        };
        let left = TIMEOUT.saturating_sub(began.elapsed());
        let ended = progress.wait_for(|progress| *progress != Progress::Waiting);
        let ended = tokio::time::timeout(timeout.min(left), ended)
            .await
            .map(|ended| ended.map(|now| now.clone()));
        Some(match ended {
            Ok(Ok(progress)) => progress,
            Ok(Err(_)) => {
                Progress::Failed("another login was started, or the upstream was removed".into())
            }
            Err(_) if began.elapsed() >= TIMEOUT => Progress::Failed(LOGIN_EXPIRED.into()),
            Err(_) => Progress::Waiting,
        })
    }

    /// Drops all logins of a removed server.
    pub(crate) fn forget(&self, server: &str) {
        self.pending().retain(|_, login| login.server != server);
        self.outcomes().remove(server);
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock()
    }

    fn outcomes(&self) -> MutexGuard<'_, HashMap<String, Outcome>> {
        self.outcomes.lock()
    }
}

const LOGIN_EXPIRED: &str = "the login was not completed in time; start again";

impl Returned {
    /// Checks the parameters of the redirect, and exchanges the code for tokens, which are then
    /// stored.
    pub(crate) async fn finish(&self, callback: &Callback) -> Result<(), String> {
        if let Some(error) = &callback.error {
            let description = callback.error_description.as_deref().unwrap_or(error);
            return Err(format!(
                "the authority denied the login: {}",
                errors::excerpt(description)
            ));
        }
        if callback.code.is_empty() || callback.code.len() > MAX_TEXT {
            return Err("the authority sent no valid code".into());
        }
        let issuer = callback.iss.as_deref();
        let exchanged =
            self.session.handle_callback_with_issuer(&callback.code, &callback.state, issuer).await;
        exchanged.map(drop).map_err(|error| errors::of_login(&error))
    }

    /// Reports the result to the clients that wait for the login.
    pub(crate) fn set_result(&self, ended: &Result<(), String>) {
        self.progress.send_replace(match ended {
            Ok(()) => Progress::Done,
            Err(why) => Progress::Failed(why.clone()),
        });
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::auth::AuthorizationManager;

    use super::*;

    async fn session(state: &str) -> AuthorizationSession {
        let manager = AuthorizationManager::new("https://mcp.example.com/mcp").await.unwrap();
        let url = format!("https://auth.example.com/authorize?state={state}");
        AuthorizationSession::for_scope_upgrade(manager, url, "http://127.0.0.1/callback")
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_is_valid_once_and_for_a_limited_time() {
        let logins = Logins::default();
        let login = logins.begin("a", session("one").await).unwrap();
        assert!(logins.take("a", "another").is_none());
        assert!(logins.take("b", "one").is_none(), "of another server");
        assert_eq!(logins.take("a", "one").unwrap().server, "a");
        assert!(logins.take("a", "one").is_none(), "twice");
        let failed = logins.wait("a", &login.id, Duration::ZERO).await;
        assert!(
            matches!(failed, Some(Progress::Failed(_))),
            "its only bearer has dropped it: {failed:?}"
        );

        let login = logins.begin("a", session("two").await).unwrap();
        assert_eq!(
            logins.wait("a", &login.id, Duration::from_secs(1)).await,
            Some(Progress::Waiting)
        );
        assert_eq!(logins.wait("a", "another", Duration::ZERO).await, None);
        tokio::time::advance(TIMEOUT).await;
        assert!(logins.take("a", "two").is_none(), "too late");
        assert!(matches!(
            logins.wait("a", &login.id, Duration::ZERO).await,
            Some(Progress::Failed(_))
        ));
    }

    #[tokio::test]
    async fn a_server_has_one_login_under_way_and_there_are_not_too_many() {
        let logins = Logins::default();
        let first = logins.begin("a", session("one").await).unwrap();
        let second = logins.begin("a", session("two").await).unwrap();
        assert!(logins.take("a", "one").is_none(), "the second has taken its place");
        assert_eq!(logins.wait("a", &first.id, Duration::ZERO).await, None);
        let returned = logins.take("a", "two").unwrap();
        let refused = Callback { error: Some("access_denied".into()), ..Callback::default() };
        let ended = returned.finish(&refused).await;
        returned.set_result(&ended);
        let progress_seen = logins.wait("a", &second.id, Duration::ZERO).await;
        assert!(
            matches!(&progress_seen, Some(Progress::Failed(why)) if why.contains("access_denied")),
            "{progress_seen:?}"
        );
        assert!(logins.begin("a", session("mine&state=yours").await).is_err());
        for number in 0..MAX_PENDING {
            logins.begin(&format!("s{number}"), session(&format!("n{number}")).await).unwrap();
        }
        assert!(logins.begin("one more", session("m").await).unwrap_err().contains("under way"));
    }
}
