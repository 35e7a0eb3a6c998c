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
