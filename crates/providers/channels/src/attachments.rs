//! Attachments, stored as files beside the log. Writing a large one does not block small
//! messages.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sa_protocol::channel::AttachmentMeta;
use serde::Deserialize;
use tracing::warn;

use crate::pipeline::IN_FLIGHT;

/// The maximum number of attachments of one message.
const MAX_ATTACHMENTS: usize = 64;
const MAX_TEXT: usize = 256;

/// Checks the description of attachments against the received bytes.
pub(crate) fn check(described: &[AttachmentMeta], bytes: usize, max: usize) -> Result<(), String> {
    if described.len() > MAX_ATTACHMENTS {
        return Err(format!("a message can have at most {MAX_ATTACHMENTS} attachments"));
    }
    if bytes > max {
        return Err(format!("the attachments have {bytes} bytes; the maximum is {max}"));
    }
    let sum = described.iter().try_fold(0_u64, |sum, meta| sum.checked_add(meta.size));
    if sum != Some(bytes as u64) {
        return Err(format!(
            "the sizes in attachmentMeta do not add up to the {bytes} bytes received"
        ));
    }
    let texts = described
        .iter()
        .flat_map(|meta| [Some(&meta.mime_type), meta.name.as_ref(), meta.id.as_ref()]);
    if texts
        .flatten()
        .any(|text| text.is_empty() || text.len() > MAX_TEXT || text.contains(char::is_control))
    {
        return Err(format!(
            "an attachment's id, name and mimeType must have 1 to {MAX_TEXT} bytes of visible text"
        ));
    }
    let mut ids: Vec<_> = described.iter().filter_map(|meta| meta.id.as_deref()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("two attachments of the message have the same id".into());
    }
    Ok(())
}

/// Writes the attachments of a message to disk and returns the file name. `head` is the last
/// message of the channel: the file's message follows soon after it.
pub(crate) async fn write(
    dir: &Path,
    epoch: &str,
    head: u64,
    bytes: Bytes,
) -> io::Result<Arc<str>> {
    let name = format!("{head:020}-{}", uuid::Uuid::now_v7().simple());
    let (place, file) = (place(dir, epoch), name.clone());
    let write = move || {
        use std::io::Write as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        let file = place.join(&file);
        let mut out =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        let written = out.write_all(&bytes).and_then(|()| out.sync_all());
        // The directory entry must be on disk, too.
        written.and_then(|()| std::fs::File::open(&place)?.sync_all()).inspect_err(|_| {
            // No message refers to an incomplete file, and the disk may be full.
            let _ = std::fs::remove_file(&file);
        })
    };
    tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
    Ok(name.into())
}

pub(crate) async fn read(dir: &Path, epoch: &str, file: &str) -> io::Result<Bytes> {
    tokio::fs::read(place(dir, epoch).join(file)).await.map(Into::into)
}

/// Returns the path of an attachment file.
pub(crate) fn path(dir: &Path, epoch: &str, file: &str) -> PathBuf {
    place(dir, epoch).join(file)
}

/// Returns the descriptions of a stored message's attachments.
pub(crate) fn described(body: &[u8]) -> Vec<AttachmentMeta> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape {
        #[serde(default)]
        attachment_meta: Vec<AttachmentMeta>,
    }
    serde_json::from_slice::<Shape>(body).map(|shape| shape.attachment_meta).unwrap_or_default()
}

/// Deletes the files of deleted messages; `first` is the oldest remaining one. The file name
/// contains the last message before its own, so a margin of messages in flight is added.
pub(crate) async fn sweep(dir: &Path, epoch: &str, first: u64) {
    let place = place(dir, epoch);
    let sweep = move || {
        let Ok(files) = std::fs::read_dir(&place) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let head = name.to_str().and_then(|name| name.split('-').next()?.parse::<u64>().ok());
            if head.is_some_and(|head| head.saturating_add(IN_FLIGHT as u64 * 2) < first)
                && let Err(error) = std::fs::remove_file(file.path())
            {
                warn!(file = %file.path().display(), %error, "cannot delete old attachments");
            }
        }
    };
    let _ = tokio::task::spawn_blocking(sweep).await;
}

/// Deletes all files of a channel.
pub(crate) async fn delete_all(dir: &Path, epoch: &str) {
    let place = place(dir, epoch);
    if let Err(error) = tokio::fs::remove_dir_all(&place).await
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(dir = %place.display(), %error, "cannot delete the attachments of a channel");
    }
}

/// Returns the directory of a channel. It is named after the epoch, so that no channel name can
/// lead outside.
fn place(dir: &Path, epoch: &str) -> PathBuf {
    dir.join(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(id: Option<&str>, size: u64) -> AttachmentMeta {
        AttachmentMeta { id: id.map(Into::into), mime_type: "a/b".into(), name: None, size }
    }

    #[test]
    fn descriptions_that_lie_are_refused() {
        assert!(check(&[meta(None, 3), meta(Some("x"), 4)], 7, 10).is_ok());
        assert!(check(&[meta(None, 3)], 7, 10).is_err());
        assert!(check(&[meta(None, 11)], 11, 10).is_err());
        assert!(check(&[meta(None, u64::MAX), meta(None, 8)], 7, 10).is_err());
        assert!(check(&[meta(Some("x"), 3), meta(Some("x"), 4)], 7, 10).is_err());
        assert!(check(&vec![meta(None, 0); 65], 0, 10).is_err());
    }
}
