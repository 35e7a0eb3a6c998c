//! Rule: an index is added only together with at least one of its plugins.

use sa_core::store::Records as _;
use sa_plugins::ChangeError;
use serde_json::json;

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

#[tokio::test]
async fn an_index_whose_plugins_all_fail_is_refused_with_each_reason() {
    let (site, disk) = (Site::start().await, Disk::new());
    let entry = |name: &str| json!({ "identifier": name, "manifest": format!("{name}.json") });
    site.set("/index.json", json!({ "plugins": [entry("gone"), entry("empty")] }).to_string());
    let empty = json!({ "identifier": "empty", "meta": {}, "api": [] });
    site.set("/empty.json", empty.to_string());
    let plugins = disk.load().await;
    let refused = plugins.add(site.at("/index.json"), &site.terms()).await.unwrap_err();
    let ChangeError::Index(why) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("gone: ") && why.contains("; empty: "), "{why}");
    assert!(plugins.list().is_empty() && plugins.indexes().is_empty());
    assert!(disk.store.list("plugin-indexes").await.unwrap().is_empty());

    // One usable plugin is enough.
    let api = json!([{ "name": "run", "description": "Runs.", "url": "https://example.com/run", "parameters": { "type": "object" } }]);
    let usable = json!({ "identifier": "empty", "meta": {}, "api": api });
    site.set("/empty.json", usable.to_string());
    let added = plugins.add(site.at("/index.json"), &site.terms()).await.unwrap();
    assert_eq!((added.plugins.len(), added.failed.len()), (1, 1), "{added:?}");
    assert_eq!(plugins.indexes().len(), 1);
}
