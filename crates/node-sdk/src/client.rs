use std::sync::Arc;
use std::time::Duration;

use sa_protocol::node::Features;
use sa_protocol::{MAX_TOOL_RESPONSE_BYTES, ReconnectBackoff};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::builder::Config;
use crate::call::Limits;
use crate::connect::Welcomed;
use crate::network::{Network, Tcp};
use crate::session::{End, Session};
use crate::{NodeClientBuilder, NodeSdkError, ToolRegistry, connect, stop};

/// A node that is ready to run.
#[derive(Debug, Clone)]
pub struct NodeClient {
    config: Arc<Config>,
}

impl NodeClient {
    /// Creates a [`NodeClientBuilder`].
    pub fn builder() -> NodeClientBuilder {
        NodeClientBuilder::new()
    }

    pub(crate) fn new(config: Config) -> Self {
        Self { config: Arc::new(config) }
    }

    /// Connects, answers calls, and reconnects whenever the connection is lost.
    ///
    /// Returns [`NodeSdkError::Shutdown`] when `shutdown` is cancelled, and another error if
    /// reconnecting cannot help. Dropping the future stops the node as well and cancels its running
    /// tools.
    pub fn run(
        &self,
        registry: ToolRegistry,
        shutdown: CancellationToken,
    ) -> impl Future<Output = Result<(), NodeSdkError>> + Send + 'static + use<> {
        run(Tcp, Arc::clone(&self.config), registry, shutdown)
    }

    /// Runs like [`run`](Self::run), until the process receives Ctrl-C, or SIGTERM on Unix.
    ///
    /// Such a stop is not an error. The gateway is informed that the node was stopped and did not
    /// fail. Running tools are cancelled, and have
    /// [`cancel_grace`](NodeClientBuilder::cancel_grace) to end.
    ///
    /// From the first call on, these signals have no other effect in this process. A program that
    /// handles them itself passes its own token to `run`.
    pub fn run_until_stopped(
        &self,
        registry: ToolRegistry,
    ) -> impl Future<Output = Result<(), NodeSdkError>> + Send + 'static + use<> {
        let shutdown = CancellationToken::new();
        let run = self.run(registry, shutdown.clone());
        async move {
            let mut run = std::pin::pin!(run);
            let ended = tokio::select! {
                ended = &mut run => ended,
                () = stop::told_to() => {
                    shutdown.cancel();
                    run.await
                }
            };
            ended.or_else(
                |error| if matches!(error, NodeSdkError::Shutdown) { Ok(()) } else { Err(error) },
            )
        }
    }

    /// Runs like [`run`](Self::run), over another network than TCP. It is for the simulation of
    /// gateways and nodes and for the gateway's own demo node, not for public use.
    #[doc(hidden)]
    pub fn run_over(
        &self,
        network: impl Network,
        registry: ToolRegistry,
        shutdown: CancellationToken,
    ) -> impl Future<Output = Result<(), NodeSdkError>> + Send + 'static {
        run(network, Arc::clone(&self.config), registry, shutdown)
    }

    /// Connects once and echoes every message until the connection ends.
    ///
    /// The official WebSocket test suite requires such a client. Everything except the handling of
    /// a message is the code of a normal connection. Not for public use.
    #[doc(hidden)]
    pub async fn echo(&self) -> Result<(), NodeSdkError> {
        let socket = connect::reach(&Tcp, &self.config).await?;
        let limits = Limits { payload: MAX_TOOL_RESPONSE_BYTES, frame: usize::MAX };
        let welcomed = Welcomed { socket, features: Features::default(), limits };
        let (registry, permits) = (ToolRegistry::new(), Arc::new(Semaphore::new(0)));
        Session::new(&self.config, &registry, permits, welcomed)
            .echo(&CancellationToken::new())
            .await;
        Ok(())
    }

    /// Runs like [`run`](Self::run) on a new task. Call it within a Tokio runtime.
    pub fn spawn(
        &self,
        registry: ToolRegistry,
        shutdown: CancellationToken,
    ) -> JoinHandle<Result<(), NodeSdkError>> {
        tokio::spawn(self.run(registry, shutdown))
    }
}

async fn run(
    network: impl Network,
    config: Arc<Config>,
    registry: ToolRegistry,
    shutdown: CancellationToken,
) -> Result<(), NodeSdkError> {
    if registry.capabilities().is_empty() {
        tracing::warn!(
            "the registry advertises no capability, so no call can reach this node; \
             call derive_capabilities_from_tools or add_capability_prefix"
        );
    }
    let registry = Arc::new(registry);
    let permits = Arc::new(Semaphore::new(config.max_concurrent_tools.min(Semaphore::MAX_PERMITS)));
    let mut failures = 0;
    loop {
        let opened = Box::pin(connect::open(&network, &config, &registry));
        let opened = shutdown.run_until_cancelled(opened).await;
        let (error, delay) = match opened.ok_or(NodeSdkError::Shutdown)? {
            Ok(welcomed) => {
                failures = 0;
                let session = Session::new(&config, &registry, Arc::clone(&permits), welcomed);
                match session.run(&shutdown).await {
                    End::Shutdown => return Err(NodeSdkError::Shutdown),
                    End::Lost { error, replaced: true } => {
                        (error, longest_delay(&network, &config.backoff))
                    }
                    End::Lost { error, replaced: false } => {
                        (error, delay(&network, &config.backoff, 0))
                    }
                }
            }
            Err(error) => {
                failures += 1;
                (error, delay(&network, &config.backoff, failures - 1))
            }
        };
        if error.is_final() {
            return Err(error);
        }
        if config.backoff.should_give_up(failures) {
            tracing::error!(%error, attempts = failures, "not connected to the gateway; giving up");
            return Err(NodeSdkError::ReconnectExhausted(failures));
        }
        tracing::warn!(%error, "not connected to the gateway; reconnecting in {delay:.1?}");
        let slept = shutdown.run_until_cancelled(tokio::time::sleep(delay)).await;
        slept.ok_or(NodeSdkError::Shutdown)?;
    }
}

/// Returns the delay with jitter, so that the nodes of a restarted gateway do not all reconnect at
/// once.
fn delay(network: &impl Network, backoff: &ReconnectBackoff, attempt: u32) -> Duration {
    backoff.delay(attempt, network.jitter())
}

/// Returns the delay for a node that was replaced. Otherwise two nodes with one id would replace
/// each other forever, as fast as they can connect.
fn longest_delay(network: &impl Network, backoff: &ReconnectBackoff) -> Duration {
    delay(network, &ReconnectBackoff { initial_delay: backoff.max_delay, ..backoff.clone() }, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_up_to_a_quarter_of_jitter() {
        let backoff = ReconnectBackoff::default();
        let mut seen = Vec::new();
        for _ in 0..200 {
            let delay = delay(&Tcp, &backoff, 1);
            assert!((2.0..=2.5).contains(&delay.as_secs_f64()), "{delay:?}");
            assert!((60.0..=75.0).contains(&longest_delay(&Tcp, &backoff).as_secs_f64()));
            seen.push(delay);
        }
        seen.dedup();
        assert!(seen.len() > 100, "jitter is not random");
    }
}
