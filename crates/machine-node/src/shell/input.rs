//! Writing to what a command reads.

use std::io::ErrorKind;
use std::time::Duration;

use sa_node_sdk::ToolError;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Mutex;

/// How long a command may leave its input unread before whoever writes to it is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most that is written at once.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The way into a command. Closed when it ends, or when it was never open.
#[derive(Debug)]
pub(super) struct Stdin {
    file: Mutex<Option<Sender>>,
    /// What the Enter key sends: a terminal has one, a pipe has lines.
    pub(super) enter: char,
}

impl Stdin {
    pub(super) fn new(file: Option<Sender>, terminal: bool) -> Self {
        Self { file: Mutex::new(file), enter: if terminal { '\r' } else { '\n' } }
    }

    pub(super) async fn close(&self) {
        *self.file.lock().await = None;
    }

    /// Writes all of it, in the order of the calls.
    pub(super) async fn write(&self, session: &str, bytes: &[u8]) -> Result<(), ToolError> {
        let mut written = 0;
        let writing = async {
            let mut file = self.file.lock().await;
            while written < bytes.len() {
                let Some(open) = file.as_ref() else { return Err(ErrorKind::BrokenPipe.into()) };
                open.writable().await?;
                match open.try_write(&bytes[written..]) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => {
                        // Nobody will ever read it.
                        *file = None;
                        return Err(error);
                    }
                }
            }
            Ok::<(), std::io::Error>(())
        };
        match tokio::time::timeout(PATIENCE, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ToolError::Failed(format!("stdin of session {session} is not writable: {error}"))),
            Err(_) => Err(ToolError::Failed(format!(
                "session {session} does not read its stdin: {written} of {} bytes were written within {} s",
                bytes.len(),
                PATIENCE.as_secs()
            ))),
        }
    }
}
