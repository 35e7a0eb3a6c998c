//! Calls that run in the background while a test causes faults. The faults must not affect them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Hello, Server, eventually};

/// Makes one call after the other to its own node. Each call must succeed.
#[derive(Debug)]
pub struct Traffic {
    done: Arc<AtomicUsize>,
    stop: CancellationToken,
    calls: JoinHandle<()>,
    node: JoinHandle<()>,
}

impl Traffic {
    pub async fn start(gateway: &Server) -> Self {
        let node = Hello::new("bystander").tool("bystander.echo").connect(gateway).await.echo();
        let mut socket = gateway.operator().socket().await;
        let (done, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (count, ended) = (Arc::clone(&done), stop.clone());
        let calls = tokio::spawn(async move {
            while !ended.is_cancelled() {
                let number = count.load(Ordering::Relaxed);
                socket
                    .call(&number.to_string(), "bystander.echo", json!({ "number": number }))
                    .await;
                let frame = socket.recv().await;
                assert_eq!(frame["type"], "done", "a bystander's call was disturbed: {frame}");
                assert_eq!(frame["result"]["number"], number);
                count.fetch_add(1, Ordering::Relaxed);
                // Leaves processor time to the test.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        });
        let traffic = Self { done, stop, calls, node };
        traffic.flows().await;
        traffic
    }

    /// Waits until calls that began after this moment have succeeded.
    pub async fn flows(&self) {
        let until = self.done.load(Ordering::Relaxed) + 3;
        eventually("undisturbed calls", || async {
            assert!(!self.calls.is_finished(), "a bystander's call was disturbed");
            (self.done.load(Ordering::Relaxed) >= until).then_some(())
        })
        .await;
    }

    /// Checks that every call so far has succeeded, and stops the calls.
    pub async fn end(self) {
        self.flows().await;
        self.stop.cancel();
        self.calls.await.expect("a bystander's call was disturbed");
        self.node.abort();
    }
}
