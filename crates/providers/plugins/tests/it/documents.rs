//! Large OpenAPI documents are checked, added and stored, and so are their changes.

use sa_core::store::Records as _;
use sa_openapi::Limits;
use sa_plugins::{ChangeError, View};
use sa_store::MAX_BODY_BYTES;
use serde_json::json;

use crate::support::{Disk, Site};

/// Returns a document with one operation, padded with empty lines to `bytes` bytes.
fn padded(operation: &str, bytes: usize) -> String {
    let operation = json!({ "get": { "operationId": operation } });
    let document = json!({ "openapi": "3.1.0", "info": { "title": "Pets" },
        "servers": [{ "url": "/v1" }], "paths": { "/pets": operation } })
    .to_string();
    let padding = "\n".repeat(bytes - document.len());
    document + &padding
}

fn functions(view: &View) -> Vec<&str> {
    view.functions.iter().map(|function| function.name.as_str()).collect()
}

#[tokio::test]
async fn a_large_document_is_added_alone_and_by_its_manifest() {
    let (site, disk) = (Site::start().await, Disk::new());
    site.set("/openapi.json", padded("listPets", 5 << 20));
    site.set("/manifest.json", r#"{"identifier":"named","meta":{},"openapi":"openapi.json"}"#);
    let plugins = disk.load().await;
    for path in ["/openapi.json", "/manifest.json"] {
        let (usable, problems) = plugins.check(site.at(path), &site.terms()).await.unwrap();
        assert!(usable, "{path}: {problems:?}");
        let added = plugins.add(site.at(path), &site.terms()).await.unwrap();
        assert_eq!(functions(&added.plugins[0]), ["listPets"], "{path}");
    }
    site.set("/openapi.json", padded("listPets", Limits::DEFAULT.bytes + 1));
    let refused = plugins.add(site.at("/openapi.json"), &site.terms()).await;
    assert!(matches!(refused, Err(ChangeError::Fetch(_))), "{refused:?}");
}

#[tokio::test]
async fn a_change_of_a_large_document_is_held_back_and_survives_a_restart() {
    let (site, disk) = (Site::start().await, Disk::new());
    // In a record a line break has two bytes, so that one record cannot store both versions.
    let bytes = MAX_BODY_BYTES / 4 + 1;
    site.set("/openapi.json", padded("listPets", bytes));
    let plugins = disk.load().await;
    plugins.add(site.at("/openapi.json"), &site.terms()).await.unwrap();
    site.set("/openapi.json", padded("findPets", bytes));
    let held = plugins.refresh("pets").await.unwrap().held_back.unwrap();
    assert!(!held.changes.is_empty());

    let plugins = disk.load().await;
    let view = plugins.show("pets").unwrap();
    assert_eq!(functions(&view), ["listPets"]);
    let loaded = view.held_back.unwrap();
    assert_eq!((loaded.hash, loaded.changes), (held.hash.clone(), held.changes));
    plugins.accept("pets", Some(&held.hash)).await.unwrap();

    let view = disk.load().await.show("pets").unwrap();
    assert_eq!(functions(&view), ["findPets"]);
    assert!(view.held_back.is_none());
    plugins.remove("pets").await.unwrap();
    for bucket in ["plugins", "plugins-held-back"] {
        assert!(disk.store.list(bucket).await.unwrap().is_empty(), "{bucket}");
    }
}
