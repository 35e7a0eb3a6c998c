//! An index is added only together with at least one of its plugins.

use sa_core::store::Records as _;
use sa_plugins::ChangeError;

use crate::support::{Disk, Site};

#[tokio::test]
async fn an_index_without_plugins_is_refused_and_not_stored() {
    let (site, disk) = (Site::start().await, Disk::new());
    site.set("/index.json", r#"{"plugins":[]}"#);
    let plugins = disk.load().await;
    let refused = plugins.add(site.at("/index.json"), &site.terms()).await.unwrap_err();
    assert!(matches!(refused, ChangeError::Index(_)), "{refused:?}");
    assert!(plugins.indexes().is_empty());
    assert!(disk.store.list("plugin-indexes").await.unwrap().is_empty());
}
