//! Everyone sees what a page of a plugin host needs, and operators see the rest.

use sa_testkit::{PluginServer, Setup};
use serde_json::json;

use crate::gateway::Serve as _;

#[tokio::test]
async fn everyone_sees_what_a_host_page_needs_and_operators_the_rest() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).serve().await;
    let page = json!({ "type": "standalone", "ui": { "url": "https://ui.example/app", "height": 400, "width": "100%", "mode": "iframe" },
        "systemRole": "be kind", "settings": { "type": "object", "properties": { "a": { "type": "string" } } } });
    sa_testkit::plugins::add(&at.operator(), &server.manifest("page", page.clone())).await;
    let seen = at.new_agent("a").await.get("/v1/plugins").await.body["plugins"][0].clone();
    assert_eq!(
        (&seen["type"], &seen["ui"], &seen["settings"]),
        (&page["type"], &page["ui"], &page["settings"])
    );
    assert_eq!(
        (&seen["meta"]["system_role"], &seen["api"][0]["tool"]),
        (&json!("be kind"), &json!("page__run"))
    );
    assert!(seen.get("source").is_none() && seen.get("origins").is_none(), "{seen}");
    assert_eq!(
        at.operator().get("/v1/plugins/page").await.body["origins"],
        json!([server.url("")])
    );
}
