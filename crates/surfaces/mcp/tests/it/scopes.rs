//! In every scope, each kind of principal can call over MCP exactly the tools that it is shown
//! there, in every protocol path.

use sa_core::{Output, RawJson, Role, Schema, Scope, Tool};
use sa_testkit::mcp::{Ask, Era, attach, connect, names};
use sa_testkit::{Gateway, Participant, Setup};
use serde_json::{Value, json};

const TOOLS: [&str; 7] = [
    "for_all",
    "in_session",
    "in_other_session",
    "in_room",
    "in_lobby",
    "with_header",
    "session_list",
];

async fn session(gateway: &Gateway, token: &str) -> String {
    let tools = json!([{ "name": "recall" }]);
    let body = json!({ "message": "work", "caller_id": "ant", "caller_tools": tools });
    let reply = gateway.agent(token).post("/v1/sessions", &body).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.body["session_id"].as_str().unwrap().to_owned()
}

/// Creates tokens of every role, with the rights that matter here.
async fn tokens(gateway: &Gateway) -> Vec<(String, String)> {
    let mut tokens = vec![("the operator".to_owned(), gateway.operator.clone())];
    let mut wanted: Vec<Value> = Role::ALL
        .iter()
        .map(|role| json!({ "name": role.as_str(), "role": role.as_str() }))
        .collect();
    for role in ["agent", "participant"] {
        for more in [
            json!({ "name": "in-the-room", "channels": ["room"] }),
            json!({ "name": "only-reads", "channels": ["room"], "channel_rights": ["read"] }),
            json!({ "name": "anywhere-that-begins-so", "channels": ["ro*"] }),
            json!({ "name": "with-few-tools", "tools": ["in_*"] }),
        ] {
            let mut token = more;
            token["role"] = json!(role);
            token["name"] = json!(format!("{role}-{}", token["name"].as_str().unwrap()));
            wanted.push(token);
        }
    }
    for token in wanted {
        let reply = gateway.operator().post("/v1/tokens", &token).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        tokens.push((token.to_string(), reply.body["token"].as_str().unwrap().to_owned()));
    }
    tokens
}

#[tokio::test]
async fn what_is_shown_can_be_called_and_nothing_else_by_either_way() {
    let gateway = Setup::new().start().await;
    let _worker = Participant::join(&gateway, "room", "worker").await;
    let tokens = tokens(&gateway).await;
    let caller = json!({ "name": "caller", "role": "caller" }).to_string();
    let (_, owner) = tokens.iter().find(|(name, _)| *name == caller).unwrap();
    let (own, other) = (session(&gateway, owner).await, session(&gateway, &gateway.operator).await);
    let scopes = [
        ("for_all", Scope::Everyone),
        ("in_session", Scope::Session(own.as_str().into())),
        ("in_other_session", Scope::Session(other.as_str().into())),
        ("in_room", Scope::Channel("room".into())),
        ("in_lobby", Scope::Channel("lobby".into())),
        // Only tools of the global scope have arguments repeated in headers.
        ("with_header", Scope::Channel("room".into())),
    ];
    let attached: Vec<_> = scopes
        .into_iter()
        .map(|(name, scope)| {
            let mut tool = Tool::named(name);
            if name == "with_header" {
                let n = json!({ "type": "string", "x-mcp-header": "N" });
                tool.input = Some(Schema::new(RawJson::of(
                    &json!({ "type": "object", "properties": { "n": n } }),
                )));
            }
            let answer = RawJson::of(&json!({ "from": name }));
            attach(&gateway.inner().router, name, scope, vec![tool], move |_, _| {
                let answer = answer.clone();
                Box::pin(async move { Ok(Output::json(answer)) })
            })
        })
        .collect();
    assert_eq!(attached.len(), 6);
    let ask = Ask::new(&gateway, "", "{}");
    let (mut answered, mut refused) = (0, 0);
    for query in [
        String::new(),
        format!("?session={own}"),
        format!("?session={other}"),
        "?channel=room".into(),
        "?channel=lobby".into(),
        format!("?session={own}&channel=room"),
        format!("?session={own}&channel=lobby"),
        "?channel=room&search=0".into(),
        "?channel=room&search=1".into(),
    ] {
        for (who, token) in &tokens {
            let shown = match connect(&gateway, token, &query, Era::Stateless, ()).await {
                Ok(client) => Some(names(&client).await),
                Err(_) => None,
            };
            for name in TOOLS {
                let (status, answer) = ask.vary(name, token, &query).both(&gateway).await;
                let called = status == 200
                    && answer.get("result").is_some_and(|result| result["isError"] != true);
                let is_shown = match &shown {
                    // A search can call unlisted tools, and a denied scope shows nothing.
                    Some(_) if query.contains("search=1") => called,
                    Some(shown) => shown.iter().any(|shown| shown == name),
                    None => false,
                };
                assert_eq!(called, is_shown, "{who}{query} {name}: {status} {answer}");
                assert!(shown.is_some() || status >= 400, "{who}{query} {name}: {status} {answer}");
                *(if called { &mut answered } else { &mut refused }) += 1;
            }
        }
    }
    assert!(answered > 100 && refused > 100, "{answered} {refused}");
}
