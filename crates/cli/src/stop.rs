//! Signal handling and shutdown messages.

use std::io::IsTerminal as _;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::output::Failure;
use super::table::{paragraph, width_of};
use sa_gateway::assemble::Gateway;
use sa_gateway::telemetry;

/// The exit code after a second signal.
const INTERRUPTED: i32 = 130;

/// Exits immediately, after flushing the log.
pub(super) fn exit_now() -> ! {
    telemetry::finish_logs();
    std::process::exit(INTERRUPTED)
}

/// The cancellation tokens for shutdown.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    /// Cancelled by the first SIGTERM or Ctrl-C, or by SIGHUP.
    pub(super) gently: CancellationToken,
    /// Cancelled by the second signal.
    pub(super) now: CancellationToken,
}

impl Stop {
    /// Cancels both tokens in order. A third signal exits the process immediately.
    pub(super) fn on_signals() -> Result<Self, Failure> {
        let stop = Self::default();
        let Self { gently, now } = stop.clone();
        let mut signals = Signals::listen()?;
        tokio::spawn(async move {
            for token in [gently, now] {
                signals.next().await;
                token.cancel();
            }
            signals.next().await;
            exit_now();
        });
        Ok(stop)
    }
}

/// Returns a token that is cancelled by the first SIGTERM, Ctrl-C or SIGHUP. A second signal exits
/// the process immediately.
pub(super) fn on_signals() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let fired = stop.clone();
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        signals.next().await;
        info!("stopping");
        fired.cancel();
        signals.next().await;
        exit_now();
    });
    Ok(stop)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, which only counts as the first signal.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::other(format!("cannot listen for signals: {error}"));
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        // A program started with nohup ignores SIGHUP, so that it outlives the terminal.
        let hangup =
            if hangup_ends() { Some(signal(SignalKind::hangup()).map_err(failed)?) } else { None };
        Ok(Self { terminate, interrupt, hangup })
    }

    /// Waits for the next signal. SIGHUP only counts as the first signal. When a terminal closes,
    /// both the shell and the kernel send it, and service managers send it directly after SIGTERM.
    /// It is therefore no request to stop faster.
    async fn next(&mut self) {
        let hangup = self.hangup.take();
        let hung_up = async {
            match hangup {
                Some(mut hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {}, _ = hung_up => {} }
    }
}

/// Reports whether SIGHUP would end this process. Returns `false` if the kernel does not report it.
fn hangup_ends() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SignalKind::hangup().as_raw_value() - 1)) == 0)
}

/// Logs the number of calls that the shutdown waits for, and how to stop sooner.
pub(super) async fn tell(gateway: Arc<Gateway>, stop: Stop) {
    stop.gently.cancelled().await;
    say(&stopping(gateway.router.running_count(), gateway.config.settings.server.drain_ms));
    stop.now.cancelled().await;
    let cut_off = gateway.router.running_count();
    gateway.stop_now.cancel();
    say(&format!("stopping now: {} cancelled", calls(cut_off)));
}

fn stopping(running: usize, drain_ms: u64) -> String {
    if running == 0 {
        return "stopping: no calls are running".to_owned();
    }
    let are = if running == 1 { "is" } else { "are" };
    let most = if drain_ms.is_multiple_of(1_000) {
        format!("{} s", drain_ms / 1_000)
    } else {
        format!("{drain_ms} ms")
    };
    format!(
        "stopping: no new calls; {} {are} still running and may take up to {most}; Ctrl-C or another SIGTERM stops the gateway now",
        calls(running)
    )
}

fn calls(count: usize) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

/// Prints a shutdown message. On a terminal it is printed at any log level, otherwise it is logged.
fn say(words: &str) {
    let err = std::io::stderr();
    if err.is_terminal() {
        telemetry::say(&on_terminal(words, width_of(&err)));
    } else {
        info!("{words}");
    }
}

/// Puts the message on its own lines. The terminal echoes ^C, which would otherwise shift the first
/// line beyond the width.
fn on_terminal(words: &str, width: Option<usize>) -> String {
    format!("\r{}", paragraph(words, width).join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_begins_at_the_edge_of_the_terminal_and_fits_it() {
        let said = on_terminal(&stopping(1, 30_000), Some(80));
        assert!(said.starts_with("\rstopping:") && said.contains("Ctrl-C"), "{said:?}");
        assert!(
            said.trim_start_matches('\r').lines().all(|line| line.chars().count() <= 80),
            "{said:?}"
        );
    }

    #[track_caller]
    fn check(running: usize, drain_ms: u64, expected: &str) {
        assert_eq!(stopping(running, drain_ms), expected);
    }

    #[test]
    fn whoever_stops_it_is_told_what_it_waits_for() {
        let how = "Ctrl-C or another SIGTERM stops the gateway now";
        check(0, 30_000, "stopping: no calls are running");
        check(
            1,
            30_000,
            &format!(
                "stopping: no new calls; 1 call is still running and may take up to 30 s; {how}"
            ),
        );
        check(
            7,
            1_500,
            &format!(
                "stopping: no new calls; 7 calls are still running and may take up to 1500 ms; {how}"
            ),
        );
    }
}
