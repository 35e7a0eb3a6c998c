//! Each session's own Unix socket: its path, and the limit of connections.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sa_core::{CallError, CallErrorKind};
use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

use crate::session::{Session, WORK, remove_own_dir};
use crate::sessions::Sessions;
use crate::{connection, rpc};

/// The directory of the sockets and of the agents' own directories, in the data directory.
pub(crate) const DIRECTORY: &str = "relay";
/// The maximum number of connections to one session.
const MAX_CONNECTIONS: usize = 32;
/// The maximum length of a Unix socket's path, and the length of the file name in it.
const MAX_PATH: usize = 107;
const NAME: usize = "/ses_0123456789abcdef0123456789abcdef.sock".len();

/// Creates the directory of the sockets, which only this user can access. It is in the data
/// directory, or in the directory for temporary files if that path is too long for a socket.
/// Removes files of an earlier gateway process.
pub fn socket_dir(data_dir: &Path) -> io::Result<PathBuf> {
    let data_dir = std::path::absolute(data_dir)?;
    let mut dir = data_dir.join(DIRECTORY);
    let user = rustix::process::getuid().as_raw();
    if dir.as_os_str().len() + NAME > MAX_PATH {
        // Named after the data directory, so that two gateways use different directories.
        let digest = sa_core::naming::with_hash("switchboard", &data_dir.to_string_lossy());
        dir = std::env::temp_dir().join(format!("{digest}-{user}"));
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let about = std::fs::symlink_metadata(&dir)?;
    if !about.is_dir() || about.uid() != user {
        return Err(io::Error::other(format!(
            "{} is not a directory owned by this user",
            dir.display()
        )));
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(&dir)?.flatten() {
        let path = entry.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("sock") => std::fs::remove_file(path)?,
            // An agent may have left files that cannot be removed; they do no harm.
            Some(WORK) => remove_own_dir(&path),
            _ => {}
        }
    }
    Ok(dir)
}

/// Opens a session's socket, and serves it until the session ends.
pub(crate) fn listen(sessions: &Arc<Sessions>, session: &Arc<Session>) -> io::Result<()> {
    let listener = UnixListener::bind(&session.socket)?;
    std::fs::set_permissions(&session.socket, std::fs::Permissions::from_mode(0o600))?;
    let (sessions, session) = (Arc::downgrade(sessions), Arc::clone(session));
    tokio::spawn(async move {
        let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        warn!(session = &*session.id, %error, "cannot accept the connection of an agent");
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = session.ended.cancelled() => return,
            };
            let Some(sessions) = sessions.upgrade() else { return };
            let place = Arc::clone(&places).try_acquire_owned().map_err(|_| {
                let error = format!("a session can have at most {MAX_CONNECTIONS} connections");
                CallError::new(CallErrorKind::Overloaded, error)
            });
            let connections = &sessions.options.budgets.connections;
            let place = place
                .and_then(|place| Ok((place, connections.acquire(&session.agent_holder(), 1)?)));
            let place = match place {
                Ok(place) => place,
                Err(error) => {
                    sessions.journal().count("relay", "too_many_connections");
                    refuse(stream, &error);
                    continue;
                }
            };
            let session = Arc::clone(&session);
            tokio::spawn(async move {
                connection::serve(&sessions, &session, stream).await;
                drop(place);
            });
        }
    });
    Ok(())
}

/// Writes an error to a new connection and closes it.
fn refuse(stream: UnixStream, error: &CallError) {
    // The line fits in the buffer of the socket. If it does not, it is not worth a wait.
    let line = format!("{}\n", rpc::refused(None, error));
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_with_a_long_path_has_its_sockets_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let near = socket_dir(root.path()).unwrap();
        assert!(near.starts_with(root.path()));
        std::fs::write(near.join("ses_old.sock"), "").unwrap();
        socket_dir(root.path()).unwrap();
        assert!(!near.join("ses_old.sock").exists(), "what a former gateway left is removed");
        let long = root.path().join("a".repeat(100));
        let far = socket_dir(&long).unwrap();
        assert!(far.as_os_str().len() + NAME <= MAX_PATH, "{}", far.display());
        assert_eq!(std::fs::metadata(&far).unwrap().mode() & 0o777, 0o700);
        std::fs::remove_dir(far).unwrap();
    }
}
