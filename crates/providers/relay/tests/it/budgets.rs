//! Rule: connections to sessions, their incomplete lines, their requests and their unread answers
//! use the share of the session's owner in the gateway's budgets. Other principals are served.

use std::sync::Arc;
use std::time::Duration;

use sa_core::{Principal, Role};
use sa_limits::budget::{Holder, SharedBudget};
use sa_relay::Budgets;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::kit::{Agent, Kit, SOON, budget, principal};

const LINE: usize = 1 << 20;
const TOTAL: usize = 8 * LINE;

async fn limited(connections: usize) -> (Kit, Budgets) {
    let budgets = Budgets {
        connections: budget("connections", connections),
        requests: budget("requests", TOTAL),
        answers: budget("answers", TOTAL),
    };
    let used = budgets.clone();
    let set = |options: &mut sa_relay::Options| {
        (options.budgets, options.max_line_bytes) = (used, LINE);
    };
    (Kit::with("cat", Duration::ZERO, |store| store, set).await, budgets)
}

#[track_caller]
fn check_refused(answer: &Value, budget: &str) {
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["data"]["retryable"]), (&json!(-32005), &json!(true)));
    assert_eq!(error["data"]["kind"], "overloaded", "{answer}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(budget) && message.contains("of them by this principal"), "{message}");
}

/// Waits until a budget is empty.
async fn emptied(budget: &SharedBudget) {
    let empty = async {
        while budget.used() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, empty).await.unwrap();
}

/// Checks that another agent and an operator are served.
async fn check_others_are_served(kit: &Kit) {
    let operator = Arc::new(Principal::new("operator", "operator", Role::Operator));
    for other in [principal("other"), operator] {
        let (_, mut agent) = kit.session(&other).await;
        let arguments = json!({ "text": "x".repeat(LINE / 4) });
        agent.ask("caller_tool", json!({ "tool": "send", "arguments": arguments })).await;
        let poll = json!({ "session_id": own_session(kit, &other).await, "wait_ms": 10_000 });
        let next = kit.call(&other, "caller_tool_next", poll.clone()).await.unwrap();
        let request = &next["requests"][0]["request_id"];
        let answer =
            json!({ "session_id": poll["session_id"], "request_id": request, "result": arguments });
        kit.call(&other, "caller_tool_response", answer).await.unwrap();
        assert_eq!(agent.answer().await["result"], arguments, "{}", other.id);
    }
}

async fn own_session(kit: &Kit, principal: &Arc<Principal>) -> String {
    let listed = kit.sessions.list(principal).await.unwrap();
    listed.into_iter().find(|view| *view.owner.id == *principal.id).unwrap().session_id
}

#[tokio::test]
async fn incomplete_lines_of_one_principal_stay_within_its_share() {
    let (kit, budgets) = limited(1_000).await;
    let greedy = principal("greedy");
    let (session, _first) = kit.session(&greedy).await;
    let path = kit.socket(&greedy, &session).await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    let mut agents = JoinSet::new();
    for _ in 0..24 {
        let mut agent = Agent::connect(&path).await;
        let sender = sender.clone();
        agents.spawn(async move {
            agent.write(&vec![b' '; LINE]).await;
            let refused = agent.line().await;
            let _ = sender.send((agent, refused));
        });
    }
    // Each line is refused, or it is in memory as a whole.
    let mut refused = Vec::new();
    let all_counted = async {
        loop {
            while let Ok(answer) = answers.try_recv() {
                refused.push(answer);
            }
            let held = budgets.requests.held_by(&Holder::named("greedy"));
            assert!(held <= TOTAL * 3 / 4, "{held}");
            if held == (24 - refused.len()) * LINE {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, all_counted).await.unwrap();
    assert!((18..=19).contains(&refused.len()), "{} lines were refused", refused.len());
    for (_, answer) in &refused {
        check_refused(answer, "requests");
    }
    check_others_are_served(&kit).await;
    // The rest of a refused line is discarded, and the next line is read.
    let (mut agent, _) = refused.pop().unwrap();
    agent.write(b"\n").await;
    agent.request("project_list", json!({})).await;
    agents.shutdown().await;
    drop((agent, refused));
    emptied(&budgets.requests).await;
}

#[tokio::test]
async fn running_requests_and_unread_answers_stay_within_the_share() {
    let (kit, budgets) = limited(1_000).await;
    let greedy = principal("greedy");
    let (session, mut agent) = kit.session(&greedy).await;
    let path = kit.socket(&greedy, &session).await;
    // Each request is large, and runs until its caller answers.
    let arguments = json!({ "text": "x".repeat(LINE / 2) });
    let call = json!({ "tool": "send", "arguments": arguments });
    let mut callers = Vec::new();
    for _ in 0..12 {
        let mut caller = Agent::connect(&path).await;
        caller.ask("caller_tool", call.clone()).await;
        callers.push(caller);
    }
    let running = async {
        while kit.sessions.show(&greedy, &session).await.unwrap().pending < 12 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, running).await.unwrap();
    agent.ask("caller_tool", call).await;
    check_refused(&agent.line().await, "requests");
    check_others_are_served(&kit).await;
    // The answers are not read.
    let answered = async {
        for n in 0..12 {
            let poll = json!({ "session_id": session, "wait_ms": 10_000 });
            let next = kit.call(&greedy, "caller_tool_next", poll).await.unwrap();
            let request = &next["requests"][0]["request_id"];
            let result = json!({ "n": n, "text": "x".repeat(LINE) });
            let answer = json!({ "session_id": session, "request_id": request, "result": result });
            kit.call(&greedy, "caller_tool_response", answer).await.unwrap();
        }
    };
    tokio::time::timeout(SOON, answered).await.unwrap();
    emptied(&budgets.requests).await;
    let held = budgets.answers.held_by(&Holder::named("greedy"));
    assert!(held > 0 && held <= TOTAL * 3 / 4, "{held}");
    check_others_are_served(&kit).await;
    let (mut whole, mut refused) = (0, 0);
    for caller in &mut callers {
        let answer = caller.answer().await;
        if answer["error"].is_null() {
            whole += 1;
        } else {
            check_refused(&answer, "answers");
            refused += 1;
        }
    }
    assert!(whole >= 5 && refused >= 5, "{whole} and {refused}");
    emptied(&budgets.answers).await;
}

#[tokio::test]
async fn connections_to_sessions_count_for_the_owner_of_the_session() {
    let (kit, budgets) = limited(16).await;
    let greedy = principal("greedy");
    let (session, first) = kit.session(&greedy).await;
    let path = kit.socket(&greedy, &session).await;
    let mut agents = vec![first];
    for _ in 1..12 {
        let mut agent = Agent::connect(&path).await;
        agent.request("project_list", json!({})).await;
        agents.push(agent);
    }
    check_refused(&Agent::connect(&path).await.line().await, "connections");
    assert_eq!(budgets.connections.held_by(&Holder::named("greedy")), 12);
    let (_, mut other) = kit.session(&principal("other")).await;
    other.request("project_list", json!({})).await;
    drop((agents, other));
    emptied(&budgets.connections).await;
}
