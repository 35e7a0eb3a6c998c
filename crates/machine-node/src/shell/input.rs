//! Writes to the input of a command.

use std::io::ErrorKind;
use std::time::Duration;

use sa_node_sdk::ToolError;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Mutex;

/// The time for which a command may leave its input unread before the writer gets an error.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of one write.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The input of a command. It is closed when the command ends, or if it was never open.
#[derive(Debug)]
pub(super) struct Stdin {
    file: Mutex<Option<Sender>>,
    /// The character of the Enter key: `\r` for a terminal, `\n` for a pipe.
    pub(super) enter: char,
}

impl Stdin {
    pub(super) fn new(file: Option<Sender>, terminal: bool) -> Self {
        Self { file: Mutex::new(file), enter: if terminal { '\r' } else { '\n' } }
    }

    pub(super) async fn close(&self) {
        *self.file.lock().await = None;
    }

    /// Writes all bytes, in the order of the calls.
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
                        // No process will ever read it.
                        *file = None;
                        return Err(error);
                    }
                }
            }
            Ok::<(), std::io::Error>(())
        };
        match tokio::time::timeout(TIMEOUT, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ToolError::Failed(format!(
                "stdin of session {session} is not writable: {error}"
            ))),
            Err(_) => Err(ToolError::Failed(format!(
                "session {session} does not read its stdin: only {written} of {} bytes were written within {} s",
                bytes.len(),
                TIMEOUT.as_secs()
            ))),
        }
    }
}
