//! An agent in a channel: other participants' methods are its tools, and a request to stop reaches
//! it.

use sa_messaging::{
    AgentToolsOptions, CallOptions, Event, EventFilter, InterruptHandler, Method, MethodContext,
    PauseStatus, SendOptions, pause_method, tools_for_agent,
};
use sa_testkit::messaging::{client, find, join};
use sa_testkit::{Hello, Participant, Setup, eventually, soon};
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[tokio::test]
async fn methods_become_tools_with_names_of_their_own() {
    let gateway = Setup::new().start().await;
    let method = |name: &str, answer: &'static str| {
        Method::raw(
            name,
            json!({ "type": "object" }),
            move |_: Value, _: MethodContext| async move { Ok::<_, String>(answer) },
        )
    };
    let long = "m".repeat(100);
    let a =
        client(&gateway, "a_b").await.method(method("c", "first")).method(method(&long, "long"));
    let b = client(&gateway, "a").await.method(method("b_c", "second").description("The second"));
    let (_a, _b) = (a.connect().await.unwrap(), b.connect().await.unwrap());
    let agent =
        client(&gateway, "agent").await.method(method("own", "own")).connect().await.unwrap();
    let tools = tools_for_agent(&agent, &AgentToolsOptions::default());
    assert_eq!(tools.definitions().len(), 3, "its own are not among them: {tools:?}");
    let mut answers = Vec::new();
    for tool in tools.definitions() {
        assert!(tool.name.len() <= 64 && tool.name.starts_with("pubsub_a_"), "{}", tool.name);
        assert_eq!(tool.parameters, json!({ "type": "object" }));
        let output = soon(tools.execute(&tool.name, json!({}), CallOptions::new())).await.unwrap();
        answers.push((output.content.as_str().unwrap().to_owned(), tool.description.clone()));
    }
    answers.sort();
    assert_eq!(answers[2], ("second".into(), "The second".into()));
    assert_eq!((answers[0].0.as_str(), answers[1].0.as_str()), ("first", "long"));
    let again = tools_for_agent(&agent, &AgentToolsOptions::default());
    assert_eq!(again.definitions(), tools.definitions(), "names stay");
    gateway.stop().await;
}

#[tokio::test]
async fn the_gateways_tools_are_discovered_in_the_roster() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("laptop").tool("demo.echo").connect(&gateway).await.echo();
    Participant::token_with_tools(&gateway, "agent", &["demo*"]).await;
    let agent = client(&gateway, "agent").await.connect().await.unwrap();
    let tools = tools_for_agent(&agent, &AgentToolsOptions::default());
    let names: Vec<_> = tools.definitions().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["pubsub_switchboard_demo_echo"]);
    let output =
        soon(tools.execute(names[0], json!({ "a": 1 }), CallOptions::new())).await.unwrap();
    assert!(output.content.to_string().contains("\"a\":1"), "{}", output.content);
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_to_stop_is_told() {
    let gateway = Setup::new().start().await;
    let (method, mut by_method) = mpsc::unbounded_channel();
    let pause = pause_method(move |reason| {
        let _ = method.send(reason);
        async {}
    });
    let agent = client(&gateway, "agent").await.method(pause).connect().await.unwrap();
    let ann = join(&gateway, "ann").await;
    let question = ann.send("work", SendOptions::default()).await.unwrap().message_id;
    let (told, mut heard) = mpsc::unbounded_channel();
    let (resumed, cancelled) = (told.clone(), told.clone());
    let handler = InterruptHandler::new(&agent, &question, move |reason| {
        let _ = told.send(("pause", reason));
        async {}
    })
    .on_resume(move |reason| {
        let _ = resumed.send(("resume", reason));
        async {}
    })
    .on_cancel(move |reason| {
        let _ = cancelled.send(("cancel", reason));
        async {}
    });
    let monitor = handler.monitor();
    ann.pause_execution("another message", PauseStatus::Paused, None).await.unwrap();
    ann.pause_execution(&question, PauseStatus::Paused, Some("lunch")).await.unwrap();
    assert_eq!(soon(heard.recv()).await, Some(("pause", Some("lunch".into()))));
    assert!(monitor.is_paused());
    ann.pause_execution(&question, PauseStatus::Paused, Some("a second time")).await.unwrap();
    ann.pause_execution(&question, PauseStatus::Resumed, None).await.unwrap();
    assert_eq!(soon(heard.recv()).await, Some(("resume", None)));
    assert!(!monitor.is_paused());

    let mut events = ann.events(EventFilter::default());
    for (reason, only) in [("rain", "another message"), ("fire", &*question)] {
        let args = json!({ "reason": reason, "messageId": only });
        let call = ann.call_method("agent", "pause", args, CallOptions::new());
        assert_eq!(
            soon(call.result()).await.unwrap().content,
            json!({ "paused": true, "reason": reason })
        );
        assert_eq!(soon(by_method.recv()).await, Some(Some(reason.into())));
    }
    assert_eq!(soon(heard.recv()).await, Some(("pause", Some("fire".into()))));
    let told = find(&mut events, |event| match event {
        Event::ExecutionPause(pause) if pause.envelope.sender_id == "agent" => Some(pause.payload),
        _ => None,
    })
    .await;
    assert_eq!(
        (&*told.message_id, told.status, told.reason.as_deref()),
        (&*question, PauseStatus::Paused, Some("fire"))
    );
    ann.pause_execution(&question, PauseStatus::Cancelled, None).await.unwrap();
    assert_eq!(soon(heard.recv()).await, Some(("cancel", None)));
    assert!(monitor.is_paused());
    drop(monitor);
    assert_eq!(soon(heard.recv()).await, None, "nothing is left of the watch");
    drop(agent);
    eventually("the agent's leaving", || async { (ann.roster().len() == 1).then_some(()) }).await;
    gateway.stop().await;
}
