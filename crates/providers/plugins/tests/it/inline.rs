//! Rule: a host may send a manifest that is under development along with a call. It is used under
//! the name that the host gives it, and only if the configuration allows it.

use std::sync::Arc;

use sa_core::{Principal, Role, TraceContext, View};
use sa_plugins::{Asked, Plugins, Reply};
use serde_json::{Value, json};

use crate::support::{Disk, Site};

/// Calls the function `run` of a plugin, with a manifest that names the plugin `weather`.
async fn call(plugins: &Plugins, site: &Site, identifier: &str) -> Reply {
    let api = json!([{ "name": "run", "description": "Runs.", "url": site.url("/run"), "parameters": { "type": "object" } }]);
    let manifest = json!({ "identifier": "weather", "meta": {}, "api": api });
    let payload = json!({ "identifier": identifier, "apiName": "run", "arguments": "{}", "manifest": manifest });
    let view = View::of(Arc::new(Principal::new("host", "host", Role::Agent)));
    let body = payload.to_string();
    plugins
        .run(Asked { body: body.as_bytes(), settings: None, view, trace: TraceContext::root() })
        .await
}

#[tokio::test]
async fn a_manifest_with_another_identifier_is_accepted_for_development() {
    let (site, disk) = (Site::start().await, Disk::new());
    site.set("/run", "sunny");
    let private = site.terms().allow_private;
    let open = disk
        .load_with(|options| {
            options.allow_inline_manifest = true;
            options.allow_private.clone_from(&private);
        })
        .await;
    for identifier in ["weather", "weather-dev"] {
        let reply = call(&open, &site, identifier).await;
        assert_eq!((reply.status, &*reply.body), (200, &b"sunny"[..]), "{identifier}: {reply:?}");
    }
    assert!(open.list().is_empty(), "it is not added");

    let closed = disk.load_with(|options| options.allow_private = private).await;
    for identifier in ["weather", "weather-dev"] {
        let reply = call(&closed, &site, identifier).await;
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["errorType"], "PluginMarketIndexNotFound", "{identifier}: {body}");
    }
}
