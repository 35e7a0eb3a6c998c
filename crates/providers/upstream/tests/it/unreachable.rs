//! Rule: a server with a URL that is unreachable after a restart of the gateway is reported as
//! offline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sa_core::{Directory, Notices};
use sa_store::{OpenOptions, Store};
use sa_upstream::{Spec, State, Upstreams};
use sa_vault::Vault;
use tokio_util::sync::CancellationToken;

use crate::answers::answers;
use crate::dual_era::DualEra;

const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn an_unreachable_url_is_tried_after_a_restart_and_reports_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
    let load = async |url: String| {
        let (directory, closing) =
            (Directory::new(Notices::new(), TIMEOUT), CancellationToken::new());
        let vault = Arc::new(Vault::new(dir.path().join("key"), None));
        let configured = BTreeMap::from([("up".to_owned(), Spec { url, ..Spec::default() })]);
        let loaded = Upstreams::load(
            directory,
            Arc::new(store.clone()),
            vault,
            answers(1 << 30),
            &configured,
            closing.clone(),
        );
        (loaded.await.unwrap(), closing)
    };
    let serving =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = serving.spawn(async { Arc::new(DualEra::default()).serve().await }).await.unwrap();
    let (upstreams, closing) = load(url.clone()).await;
    upstreams.reached(TIMEOUT).await;
    assert_eq!(upstreams.list()[0].health.state, State::Ready);
    closing.cancel();
    drop(upstreams);
    // Shuts down the server with its whole runtime.
    serving.shutdown_background();

    let (upstreams, _closing) = load(url).await;
    upstreams.reached(TIMEOUT).await;
    let health = upstreams.list().remove(0).health;
    assert_eq!(health.state, State::Offline, "{health:?}");
    assert!(health.last_error.is_some() && health.tools > 0, "{health:?}");
}
