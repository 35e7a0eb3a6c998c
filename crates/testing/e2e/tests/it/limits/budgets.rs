//! Every budget is in the status, in the metrics and in the documentation.

use sa_gateway_kit::Setup;

use crate::SWITCHBOARD;

const BUDGETS: [&str; 17] = [
    "answers",
    "arguments",
    "calls",
    "channel_messages",
    "channels",
    "connections",
    "idempotency_outcomes",
    "mcp_sessions",
    "node_hellos",
    "node_messages",
    "node_requests",
    "provider_answers",
    "requests",
    "session_events",
    "sessions",
    "stored",
    "task_results",
];

#[tokio::test]
async fn every_budget_is_listed_everywhere() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let status = gateway.operator().get("/v1/status").await.body;
    let budgets = status["budgets"].as_array().unwrap();
    let text = |budget: &serde_json::Value, field: &str| budget[field].as_str().unwrap().to_owned();
    let names: Vec<String> = budgets.iter().map(|budget| text(budget, "name")).collect();
    assert_eq!(names, BUDGETS);
    let shown = gateway.cli(&["status", "--json"]).run().await.json();
    let shown = shown["budgets"].as_array().unwrap();
    assert_eq!(shown.iter().map(|budget| text(budget, "name")).collect::<Vec<_>>(), BUDGETS);
    let metrics = gateway.operator().get_text("/metrics").await;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    for budget in budgets {
        let (name, key) = (text(budget, "name"), text(budget, "key"));
        for gauge in ["total", "used"] {
            let line = format!("switchboard_budget_{gauge}{{budget=\"{name}\"}} ");
            assert!(metrics.contains(&line), "{line}");
        }
        assert!(page.contains(&format!("\n| `{name}` | `{key}` |")), "{name} {key}");
    }
    gateway.stop().await;
}
