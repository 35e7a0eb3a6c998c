//! A reader that reconnects after every disconnect and records the messages that it receives.

use std::time::Duration;

use futures_util::StreamExt as _;
use sa_gateway_kit::{Message, Participant, TIMEOUT};
use serde_json::Value;
use tokio::sync::watch;

/// The end of a history while it is still unknown.
pub(crate) const OPEN: u64 = u64::MAX;

/// A stored note: its id, its sender, and its payload's `n`.
pub(crate) type Note = (u64, String, u64);

pub(crate) struct Reader {
    address: String,
    path: String,
    last: u64,
    epoch: Option<String>,
    pub(crate) seen: Vec<Note>,
    /// The number of connections.
    pub(crate) visits: usize,
}

impl Reader {
    pub(crate) fn new(address: &str, token: &str) -> Self {
        let path = format!("/v1/channels/ws?token={token}&channel=room&roster=snapshot");
        Self { address: address.into(), path, last: 0, epoch: None, seen: Vec::new(), visits: 0 }
    }

    /// Reads to the end, which becomes known during the run. Until then no connection lasts longer
    /// than `stay` returns, and a connection ends without a close frame.
    pub(crate) async fn follow(
        mut self,
        mut end: watch::Receiver<u64>,
        mut stay: impl FnMut() -> Duration + Send,
    ) -> Self {
        while self.last < *end.borrow_and_update() {
            let limit = if *end.borrow() == OPEN { stay() } else { TIMEOUT };
            if let Ok(None) = tokio::time::timeout(limit, self.visit(&mut end)).await {
                // The gateway is down, and no event reports when it is back.
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
