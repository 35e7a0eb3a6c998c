//! Starts the sessions as configured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sa_core::store::{Log, Records};
use sa_core::{Notices, Router, Trimmer};
use sa_relay::{Options, Sessions};

use crate::budgets::Budgets;
use crate::config::{Config, millis};
use crate::retention::days;
use crate::secret_files;
use crate::tokens::{TokenRecord, Tokens};

/// How long a message waits for an agent that connects by itself, before it counts as failed.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn start(
    config: &Config,
    router: &Arc<Router>,
    notices: &Notices,
    log: &Arc<dyn Log>,
    records: Arc<dyn Records>,
    trimmer: &Arc<Trimmer>,
    budgets: &Budgets,
) -> anyhow::Result<Option<Arc<Sessions>>> {
    let settings = &config.settings.sessions;
    if !settings.enabled {
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    check_sandboxes(config, &program).await.map_err(anyhow::Error::msg)?;
    let options = Options {
        socket_dir: sa_relay::socket_dir(&config.data_dir)
            .context("cannot create the directory for session sockets")?,
        data_dir: std::path::absolute(&config.data_dir)?,
        hidden: secret_files::outside_data_dir(config),
        program,
        timeout: millis(settings.caller_timeout_ms),
        caller_grace: millis(settings.caller_grace_ms),
        idle: millis(settings.idle_ms),
        agent_timeout: AGENT_TIMEOUT,
        max_sessions: settings.max_open,
        max_pending: settings.max_pending,
        max_line_bytes: config.settings.limits.max_frame_bytes,
        budgets: sa_relay::Budgets {
            connections: Arc::clone(budgets.connections.budget()),
            requests: Arc::clone(&budgets.requests),
            answers: Arc::clone(&budgets.answers),
        },
        keep_events: settings.keep_events,
        keep_event_bytes: settings.keep_event_bytes,
        max_stored_bytes: settings.max_stored_bytes,
        keep: days(config.settings.journal.keep_days),
        trimmer: Arc::clone(trimmer),
        agents: settings.agents.clone(),
        default_agent: settings.default_agent.clone(),
    };
    let sessions =
        Sessions::start(Arc::clone(router), notices.clone(), Arc::clone(log), records, options)
            .await?;
    Ok(Some(sessions))
}

/// Checks whether the sandboxed agents can run. The error names the agent and the missing part.
pub async fn check_sandboxes(config: &Config, program: &Path) -> Result<(), String> {
    let agents = config.settings.sessions.agents.clone();
    let (program, mut secrets) = (program.to_owned(), secret_files::outside_data_dir(config));
    secrets.insert(0, config.data_dir.clone());
    let checked =
        tokio::task::spawn_blocking(move || sa_relay::check_sandboxes(&program, &secrets, &agents))
            .await;
    checked.unwrap_or_else(|error| Err(error.to_string()))
}

/// Ends the sessions of expired tokens.
pub(crate) async fn end_expired(sessions: &Sessions, tokens: &Tokens) {
    let expired = |token: &TokenRecord| token.revoked_ms.is_none() && tokens.is_over(token);
    for token in tokens.list().into_iter().filter(expired) {
        sessions.end_owned(&token.id, "the caller's token has expired").await;
    }
}

#[cfg(test)]
mod tests {
    use sa_core::{CallRequest, Principal, RawJson, Role, TraceContext, View};

    use super::*;
    use crate::gateway_for_tests::{YEAR_MS, start_after};
    use crate::tokens::NewToken;

    #[tokio::test]
    async fn a_session_ends_when_its_token_has_expired_by_a_trusted_clock() {
        let dir = tempfile::tempdir().unwrap();
        let gateway = start_after(dir.path(), YEAR_MS).await;
        let new = NewToken { expires_ms: Some(1), ..NewToken::new("bot", Role::Agent) };
        let (token, _) = gateway.tokens.create(new).await.unwrap();
        let request = CallRequest {
            tool: "session_message".into(),
            args: RawJson::empty_object(),
            view: View::of(Arc::new(Principal::new(&*token.id, "bot", Role::Agent))),
            surface: "test",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        gateway.router.start(request, None).outcome().await.outcome.unwrap();
        let sessions = gateway.sessions.as_ref().unwrap();
        end_expired(sessions, &gateway.tokens).await;
        assert_eq!(sessions.count().0, 1, "the clock may be wrong");
        assert!(gateway.trimmer.confirm().is_some());
        end_expired(sessions, &gateway.tokens).await;
        assert_eq!(sessions.count().0, 0);
        gateway.shut_down().await;
        gateway.store.shutdown().await.unwrap();
    }
}
