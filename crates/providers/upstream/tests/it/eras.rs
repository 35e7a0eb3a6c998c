//! Rule: a server of both eras asks each caller in the era that the caller supports.

use std::sync::Arc;

use sa_core::{Outcome, QuestionMode};
use serde_json::Value;

use crate::dual_era::{DualEra, NEWER, OLDER};
use crate::gateway::{Gateway, TIMEOUT};

/// Returns the answer that the server received to its question.
#[track_caller]
fn answer(outcome: Outcome) -> Value {
    let content = outcome.unwrap().content.to_value().unwrap();
    serde_json::from_str(content["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_question_is_answered_in_the_era_of_the_caller() {
    let server = Arc::new(DualEra::default());
    let gateway = Gateway::before(server.serve().await).await;
    assert_eq!(
        answer(gateway.call("elicit", QuestionMode::Request, TIMEOUT).await)["content"]["name"],
        "Ada"
    );
    assert_eq!(
        answer(gateway.call("sample", QuestionMode::Request, TIMEOUT).await)["model"],
        "m-1"
    );
    assert_eq!(
        answer(gateway.call("elicit_by_result", QuestionMode::Response, TIMEOUT).await)["content"]
            ["name"],
        "Ada"
    );
}

#[tokio::test]
async fn initialize_asks_for_the_newest_revision_that_has_it() {
    let server = Arc::new(DualEra::default());
    let gateway = Gateway::before(server.serve().await).await;
    gateway.call("elicit", QuestionMode::Request, TIMEOUT).await.unwrap();
    assert_eq!(*server.requested.lock(), [OLDER]);
}

#[tokio::test]
async fn a_server_that_initializes_with_the_newer_revision_is_used_in_the_newer_era() {
    let server = Arc::new(DualEra::insisting_on(NEWER));
    let gateway = Gateway::before(server.serve().await).await;
    assert_eq!(
        answer(gateway.call("elicit_by_result", QuestionMode::Request, TIMEOUT).await)["content"]["name"],
        "Ada"
    );
}
