//! A tool that a program on stdio runs only as a task is called like any other tool.

use sa_testkit::Setup;
use sa_testkit::upstream::{noted, until};

use crate::elicitation::{call, named, text};
use crate::serve::Serve as _;
use crate::server::stdio;

#[tokio::test]
async fn a_tool_of_a_program_that_requires_a_task_runs_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("test", &["tasks"], dir.path(), "");
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    assert_eq!(text(call(&gateway, "a", "test__work", None).await), "done");
    // The task asks its caller, who answers.
    assert_eq!(text(call(&gateway, "a", "test__ask", Some(named("Ada"))).await), "Ada");
}

#[tokio::test]
async fn a_task_of_a_program_is_cancelled_with_its_call() {
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("test", &["tasks"], dir.path(), "");
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "test", "ready").await;
    tokio::select! {
        outcome = call(&gateway, "a", "test__hang", None) => panic!("it hangs: {outcome:?}"),
        _ = noted(dir.path(), "running") => {}
    }
    assert_eq!(noted(dir.path(), "cancelled").await, "hang");
}
