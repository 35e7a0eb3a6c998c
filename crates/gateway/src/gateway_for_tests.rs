//! Gateways for tests, with the data of an earlier process.

use std::path::Path;
use std::sync::Arc;

use sa_core::clock;
use sa_core::store::{Expect, Records as _};
use serde_json::json;

use crate::assemble::{Gateway, assemble};
use crate::config::Config;
use crate::config::layers::Layers;
use crate::journal::store_options;

pub(crate) const MINUTE_MS: i64 = 60_000;
/// After this time, a gateway does not trust the clock when it starts.
pub(crate) const YEAR_MS: i64 = 365 * 24 * 60 * MINUTE_MS;

pub(crate) async fn start(dir: &Path) -> Arc<Gateway> {
    assemble(config(dir)).await.unwrap()
}

/// Starts a gateway with the store of a process that ended this long ago.
pub(crate) async fn start_after(dir: &Path, ms: i64) -> Arc<Gateway> {
    let config = config(dir);
    let store = sa_store::Store::open(store_options(config.store_file())).unwrap();
    let clock = json!({ "trusted_ms": clock::now_ms() - ms });
    let clock = clock.to_string().into();
    store.put("retention", "clock", clock, Expect::Absent).await.unwrap();
    store.shutdown().await.unwrap();
    assemble(config).await.unwrap()
}

fn config(dir: &Path) -> Config {
    let flags = [("data.dir", dir.as_os_str().to_owned())];
    let layers = Layers::read(None, std::iter::empty(), &flags).unwrap();
    Config::resolve(&layers).unwrap()
}
