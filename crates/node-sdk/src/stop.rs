//! The signals by which people and service managers end a program.

/// Resolves when this process is told to end: by Ctrl-C, or on Unix by SIGTERM. Never, with a word on it, where signals cannot be
/// listened for.
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
        tracing::warn!(%error, "cannot listen for Ctrl-C; the node ends without a farewell to the gateway");
        std::future::pending::<()>().await;
    }
}
