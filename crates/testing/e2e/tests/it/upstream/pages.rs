//! A server learns that its pages are shown, and models are not offered the tools of pages.

use sa_gateway_kit::Setup;
use sa_gateway_kit::mcp::{Era, connect, names, request, value};
use sa_gateway_kit::upstream::{HttpServer, until};
use serde_json::json;

use crate::upstream::server::SERVER;

#[tokio::test]
async fn a_server_is_told_that_the_console_shows_its_pages() {
    for era in ["old", "new"] {
        let server =
            HttpServer::start_with(SERVER, "127.0.0.1:0", era, &[("SERVER_UI", "1".as_ref())])
                .await;
        let gateway = Setup::new().config(&server.config("")).start().await;
        until(&gateway, "web", "ready").await;
        let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
        let resources = client.list_all_resources().await.unwrap();
        assert!(
            resources.iter().any(|resource| resource.uri == "ui://page"),
            "{era}: {resources:?}"
        );
        // A tool for pages only is available to pages and not offered to models.
        let listed = names(&client).await;
        assert!(
            listed.contains(&"web__turn_page".to_owned())
                && listed.contains(&"web__echo".to_owned()),
            "{listed:?}"
        );
        let functions = gateway.operator().get("/v1/functions").await;
        assert!(
            functions.text.contains("web__echo") && !functions.text.contains("turn_page"),
            "{}",
            functions.text
        );
        let search =
            connect(&gateway, &gateway.operator, "?search=1", Era::Stateless, ()).await.unwrap();
        let found = value(
            &search
                .call_tool(request("find_tools", json!({ "query": "turn page echo" })))
                .await
                .unwrap(),
        );
        let found = found["structuredContent"].to_string();
        assert!(found.contains("web__echo") && !found.contains("turn_page"), "{found}");
    }
}
