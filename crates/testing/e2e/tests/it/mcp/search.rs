//! A session's tools are shown to its owner only.

use sa_gateway_kit::Setup;
use sa_gateway_kit::mcp::{ERAS, connect, names, request, value};
use sa_gateway_kit::sessions::{id, session};
use serde_json::json;

#[tokio::test]
async fn a_session_shows_its_caller_s_tools_to_its_owner_alone() {
    let gateway = Setup::new().start().await;
    let (_, owner) = gateway.token(json!({ "name": "owner", "role": "caller" })).await;
    let (_, stranger) = gateway.token(json!({ "name": "stranger", "role": "agent" })).await;
    let caller = gateway.agent(&owner);
    let session = session(&caller).await;
    let query = format!("?session={}", id(&session));
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    for era in ERAS {
        let lent = |names: Vec<String>| {
            names.into_iter().filter(|name| name.starts_with("ant_")).collect::<Vec<_>>()
        };
        let outside = connect(&gateway, &owner, "", era, ()).await.unwrap();
        assert_eq!(lent(names(&outside).await), Vec::<String>::new(), "{era:?}");
        let refused =
            value(&outside.call_tool(request("ant_send", json!({ "text": "hi" }))).await.unwrap());
        assert_eq!(refused["isError"], true, "{era:?}: {refused}");
        let inside = connect(&gateway, &owner, &query, era, ()).await.unwrap();
        assert_eq!(lent(names(&inside).await), ["ant_recall", "ant_send"], "{era:?}");
        let answer = async {
            let request = events.wait_for("caller_tool_request").await;
            assert_eq!(request["arguments"], json!({ "text": "hi" }));
            let body = json!({ "request_id": request["request_id"], "result": { "sent": true } });
            caller.post(&format!("/v1/sessions/{}/responses", id(&session)), &body).await
        };
        let (result, answered) =
            tokio::join!(inside.call_tool(request("ant_send", json!({ "text": "hi" }))), answer);
        assert_eq!(answered.status, 202, "{}", answered.text);
        assert_eq!(
            value(&result.unwrap())["structuredContent"],
            json!({ "sent": true }),
            "{era:?}"
        );
        // Another principal's session and an unknown one get the same error.
        for query in [query.as_str(), "?session=none"] {
            let error = connect(&gateway, &stranger, query, era, ()).await.unwrap_err();
            assert!(error.contains("404"), "{era:?} {query}: {error}");
        }
    }
}
