//! A reader that comes back as often as it is cut off, and notes what it was sent.

use std::time::Duration;

use futures_util::StreamExt as _;
use sa_testkit::{Message, PATIENCE, Participant};
use serde_json::Value;
use tokio::sync::watch;

/// The end of a history that has none yet.
pub(crate) const OPEN: u64 = u64::MAX;

/// A stored note: its id, its sender, and its payload's `n`.
pub(crate) type Note = (u64, String, u64);

pub(crate) struct Reader {
    address: String,
    path: String,
    last: u64,
    epoch: Option<String>,
    pub(crate) seen: Vec<Note>,
    /// How often it was there.
    pub(crate) visits: usize,
}

impl Reader {
    pub(crate) fn new(address: &str, token: &str) -> Self {
        let path = format!("/v1/channels/ws?token={token}&channel=room&roster=snapshot");
        Self { address: address.into(), path, last: 0, epoch: None, seen: Vec::new(), visits: 0 }
    }

    /// Reads to the end, which becomes known while it reads. Until then no visit is longer than `stay` says, and a visit
    /// ends without a word.
    pub(crate) async fn follow(
        mut self,
        mut end: watch::Receiver<u64>,
        mut stay: impl FnMut() -> Duration + Send,
    ) -> Self {
        while self.last < *end.borrow_and_update() {
            let limit = if *end.borrow() == OPEN { stay() } else { PATIENCE };
            if let Ok(None) = tokio::time::timeout(limit, self.visit(&mut end)).await {
                // The gateway is away; nothing tells when it is back.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        self
    }

    async fn visit(&mut self, end: &mut watch::Receiver<u64>) -> Option<()> {
        let epoch = self.epoch.as_ref().map(|epoch| format!("&epoch={epoch}")).unwrap_or_default();
        let path = format!("{}&sinceId={}{epoch}", self.path, self.last);
        let mut connection = Participant::try_connect(&self.address, &path).await.ok()?;
        self.visits += 1;
        let mut ready = false;
        while self.last < *end.borrow_and_update() {
            let message = tokio::select! {
                message = connection.socket.next() => message?.ok()?,
                _ = end.changed() => continue,
            };
            let Message::Text(text) = message else { continue };
            let frame: Value = serde_json::from_str(&text).unwrap();
            if frame["kind"] == "ready" {
                assert_eq!(frame["recovered"], true, "{frame}");
                self.epoch = frame["epoch"].as_str().map(Into::into);
                ready = true;
            }
            let Some(id) = frame["id"].as_u64() else { continue };
            assert_eq!(frame["kind"] == "replay", !ready, "{frame}");
            assert!(id > self.last, "{id} came after {}", self.last);
            self.last = id;
            if frame["type"] == "note" {
                let sender = frame["senderId"].as_str().unwrap().to_owned();
                self.seen.push((id, sender, frame["payload"]["n"].as_u64().unwrap()));
            }
        }
        Some(())
    }
}
