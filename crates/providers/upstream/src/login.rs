//! Logins that have begun: somebody was sent to a server's authority, and comes back with a code.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::transport::auth::AuthorizationSession;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::trouble;

/// How long somebody may take to log in.
const PATIENCE: Duration = Duration::from_secs(600);
/// How many logins may be under way at once.
const MAX_PENDING: usize = 64;
/// No code or word of an authority is longer.
const MAX_TEXT: usize = 8_192;

/// A login that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    /// By which it can be asked about.
    pub id: String,
    /// The address that somebody is to open.
    pub url: String,
    pub expires_in: Duration,
}

/// What has become of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Waiting,
    Done,
    Failed(String),
}

/// What an authority sends somebody back with.
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

/// All logins that are under way, by the word that comes back with whoever logs in. It is known to the authority and to
/// whoever began the login, and good once.
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

/// The latest login of a server, which can be asked about after it has ended.
struct Outcome {
    id: String,
    began: Instant,
    progress: watch::Receiver<Progress>,
}

/// Somebody is back whose login is known. What they bring is not yet looked at.
pub(crate) struct Returned {
    pub(crate) server: String,
    session: AuthorizationSession,
    progress: watch::Sender<Progress>,
}

impl Logins {
    /// Takes a login in. One that the same server had under way is over.
    pub(crate) fn begin(&self, server: &str, session: AuthorizationSession) -> Result<Begun, String> {
        let url = session.get_authorization_url().to_owned();
        let address = url::Url::parse(&url).map_err(|error| error.to_string())?;
        // An authority's own address may have one in it, which would be as good as known to others.
        let mut states = address.query_pairs().filter(|(name, _)| name == "state").map(|(_, state)| state.into_owned());
        let (Some(state), None) = (states.next(), states.next()) else {
            return Err("the authority's address has a state of its own, and cannot be used".into());
        };
        let (progress, seen) = watch::channel(Progress::Waiting);
        let (began, id) = (Instant::now(), format!("{:032x}", rand::random::<u128>()));
        let mut pending = self.pending();
        pending.retain(|_, login| login.began.elapsed() < PATIENCE && login.server != server);
        if pending.len() >= MAX_PENDING {
            return Err(format!("{MAX_PENDING} logins are under way, the most there may be; end one of them"));
        }
        pending.insert(state, Pending { server: server.to_owned(), session, began, progress });
        self.outcomes().insert(server.to_owned(), Outcome { id: id.clone(), began, progress: seen });
        Ok(Begun { id, url, expires_in: PATIENCE })
    }

    /// The login of this server that has this word. It is then known no more, whatever becomes of it.
    ///
    /// Each server has an address of its own to come back to. An authority that sends somebody on to another one, to have
    /// that one's code brought to itself, would have them come back to the other's address.
    pub(crate) fn take(&self, server: &str, state: &str) -> Option<Returned> {
        let mut pending = self.pending();
        pending.get(state).filter(|login| login.server == server)?;
        let Pending { server, session, began, progress } = pending.remove(state)?;
        drop(pending);
        if began.elapsed() >= PATIENCE {
            progress.send_replace(Progress::Failed(TOO_LATE.into()));
            return None;
        }
        Some(Returned { server, session, progress })
    }

    /// Waits for a login to end, for a while. `None` for one that is not known.
    pub(crate) async fn wait(&self, server: &str, id: &str, patience: Duration) -> Option<Progress> {
        let (began, mut progress) = {
            let outcomes = self.outcomes();
            let outcome = outcomes.get(server).filter(|outcome| outcome.id == id)?;
            (outcome.began, outcome.progress.clone())
        };
        let left = PATIENCE.saturating_sub(began.elapsed());
        let ended = progress.wait_for(|progress| *progress != Progress::Waiting);
        let ended = tokio::time::timeout(patience.min(left), ended).await.map(|ended| ended.map(|now| now.clone()));
        Some(match ended {
            Ok(Ok(progress)) => progress,
            Ok(Err(_)) => Progress::Failed("another login was begun, or the upstream was removed".into()),
            Err(_) if began.elapsed() >= PATIENCE => Progress::Failed(TOO_LATE.into()),
            Err(_) => Progress::Waiting,
        })
    }

    /// The server is gone, and its logins with it.
    pub(crate) fn forget(&self, server: &str) {
        self.pending().retain(|_, login| login.server != server);
        self.outcomes().remove(server);
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, HashMap<String, Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const TOO_LATE: &str = "nobody came back in time; begin again";

impl Returned {
    /// Looks at what they bring, and has the authority change the code for tokens, which are then kept.
    pub(crate) async fn finish(&self, callback: &Callback) -> Result<(), String> {
        if let Some(error) = &callback.error {
            let said = callback.error_description.as_deref().unwrap_or(error);
            return Err(format!("the authority did not let you in: {}", trouble::words(said)));
        }
        if callback.code.is_empty() || callback.code.len() > MAX_TEXT {
            return Err("the authority sent no code that could be used".into());
        }
        let issuer = callback.iss.as_deref();
        let exchanged = self.session.handle_callback_with_issuer(&callback.code, &callback.state, issuer).await;
        exchanged.map(drop).map_err(|error| trouble::of_login(&error))
    }

    /// Tells whoever waits for the login.
    pub(crate) fn tell(&self, ended: &Result<(), String>) {
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
    async fn a_word_is_good_once_and_for_a_while() {
        let logins = Logins::default();
        let begun = logins.begin("a", session("one").await).unwrap();
        assert!(logins.take("a", "another").is_none());
        assert!(logins.take("b", "one").is_none(), "of another server");
        assert_eq!(logins.take("a", "one").unwrap().server, "a");
        assert!(logins.take("a", "one").is_none(), "twice");
        let failed = logins.wait("a", &begun.id, Duration::ZERO).await;
        assert!(matches!(failed, Some(Progress::Failed(_))), "its only bearer has dropped it: {failed:?}");

        let begun = logins.begin("a", session("two").await).unwrap();
        assert_eq!(logins.wait("a", &begun.id, Duration::from_secs(1)).await, Some(Progress::Waiting));
        assert_eq!(logins.wait("a", "another", Duration::ZERO).await, None);
        tokio::time::advance(PATIENCE).await;
        assert!(logins.take("a", "two").is_none(), "too late");
        assert!(matches!(logins.wait("a", &begun.id, Duration::ZERO).await, Some(Progress::Failed(_))));
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
        returned.tell(&ended);
        let told = logins.wait("a", &second.id, Duration::ZERO).await;
        assert!(matches!(&told, Some(Progress::Failed(why)) if why.contains("access_denied")), "{told:?}");
        assert!(logins.begin("a", session("mine&state=yours").await).is_err());
        for number in 0..MAX_PENDING {
            logins.begin(&format!("s{number}"), session(&format!("n{number}")).await).unwrap();
        }
        assert!(logins.begin("one more", session("m").await).unwrap_err().contains("under way"));
    }
}
