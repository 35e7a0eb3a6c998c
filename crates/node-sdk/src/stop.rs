//! The signals with which users and service managers stop a program.

/// Resolves when this process receives Ctrl-C, or SIGTERM on Unix. If signals cannot be received,
/// it logs that and never resolves.
pub(crate) async fn told_to() {
    let heard = async {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                pressed = tokio::signal::ctrl_c() => pressed,
                _ = terminate.recv() => Ok(()),
            }
        }
        #[cfg(not(unix))]
        tokio::signal::ctrl_c().await
    };
    if let Err(error) = heard.await {
        tracing::warn!(%error, "cannot listen for Ctrl-C; if it stops the node, no close frame is sent to the gateway");
        std::future::pending::<()>().await;
    }
}
