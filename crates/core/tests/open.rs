//! Rule: a prefix without described tools is listed as one open tool, and a call of it names the
//! tool below. Every rule about the tool below applies to such a call.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use sa_core::directory::{Attach, Registration};
use sa_core::*;
use support::*;

/// The tools and arguments that a provider received.
type Sent = Arc<Mutex<Vec<(String, String)>>>;

fn open(prefix: &str) -> Catalog {
    let tools = vec![Tool::open(prefix, format!("Everything below {prefix}."))];
    Catalog { tools, bare_names: true, ..prefixes(&[prefix]) }
}

/// A provider that answers every call with its own id.
fn connect(gateway: &Gateway, id: &str, grant: &str, catalog: Catalog) -> (Sent, Registration) {
    let sent = Sent::default();
    let (seen, answer) = (Arc::clone(&sent), format!("\"{id}\""));
    let provider = answering(move |call: Arc<Call>, _| {
        seen.lock().push((call.tool.to_string(), call.args.as_str().to_owned()));
        let answer = ok(&answer);
        Box::pin(async move { answer })
    });
    (sent, gateway.directory.attach(Attach { ..attach(id, grant, catalog, provider) }).unwrap())
}

fn limited(tools: &[&str]) -> View {
    let tools = tools.iter().map(|text| Pattern::new(text)).collect();
    View::of(Arc::new(Principal { tools, ..Principal::new("p2", "narrow", Role::Agent) }))
}

async fn call_as(gateway: &Gateway, view: View, tool: &str, args: &str) -> Finished {
    let args = RawJson::parse(args).unwrap();
    gateway.router.start(CallRequest { args, view, ..request(tool) }, None).outcome().await
}

async fn call(gateway: &Gateway, tool: &str, args: &str) -> Finished {
    call_as(gateway, view(), tool, args).await
}

fn names(gateway: &Gateway, view: &View) -> Vec<String> {
    let page = gateway
        .directory
        .list(view, None, usize::MAX, |tool| gateway.router.policy().allows(&view.principal, tool));
    page.tools.into_iter().map(|tool| tool.name.to_string()).collect()
}

/// Checks the tool and the arguments that the provider received.
#[track_caller]
fn check(sent: &Sent, tool: &str, args: &str) {
    assert_eq!(std::mem::take(&mut *sent.lock()), [(tool.to_owned(), args.to_owned())]);
}

#[tokio::test]
async fn a_misspelt_name_below_a_described_prefix_gets_a_hint() {
    let gateway = gateway(RouterOptions::default());
    let catalog = Catalog { prefixes: vec!["demo".into()], ..tools(&["demo.echo"]) };
    let provider = answering(|call: Arc<Call>, _| {
        let error = CallError::new(CallErrorKind::NotFound, format!("unknown tool: {}", call.tool));
        let own = error.clone().hint("the hint of the node");
        Box::pin(async move { Err(if &*call.tool == "demo.ech" { own } else { error }) })
    });
    let _node = gateway.directory.attach(attach("n", "g", catalog, provider)).unwrap();
    for (name, view, hint) in [
        ("demo_ecco", view(), Some("did you mean demo_echo?")),
        ("demo.ecco", view(), Some("did you mean demo_echo?")),
        ("demo_ech", view(), Some("the hint of the node")),
        ("demo_unrelated", view(), None),
        ("demo_ecco", limited(&["demo*"]), None),
    ] {
        let finished = call_as(&gateway, view, name, "{}").await;
        let error = assert_error(&finished, CallErrorKind::NotFound, "unknown tool: demo.");
        assert_eq!(error.hint.as_deref(), hint, "{name}");
    }
}

#[tokio::test]
async fn an_open_tool_is_listed_and_calls_say_which_tool_they_are_for() {
    let gateway = gateway(RouterOptions::default());
    let (sent, _node) = connect(&gateway, "mac", "g", open("macos.notes"));
    assert_eq!(names(&gateway, &view()), ["macos_notes"]);
    for name in ["macos_notes", "macos.notes"] {
        for (args, tool, passed) in [
            (r#"{"tool":"search","args":{"q":1.0}}"#, "macos.notes.search", r#"{"q":1.0}"#),
            (r#"{"tool":"all.of_them"}"#, "macos.notes.all.of_them", "{}"),
            (r#"{"tool":"","args":{"q":1}}"#, "macos.notes", r#"{"q":1}"#),
            // Arguments in any other form are passed on unchanged.
            (r#"{"q": 1}"#, "macos.notes", r#"{"q": 1}"#),
            (r#"{"tool":5}"#, "macos.notes", r#"{"tool":5}"#),
            (
                r#"{"tool":"x","args":{},"more":1}"#,
                "macos.notes",
                r#"{"tool":"x","args":{},"more":1}"#,
            ),
            ("null", "macos.notes", "null"),
        ] {
            assert!(call(&gateway, name, args).await.outcome.is_ok(), "{name} {args}");
            check(&sent, tool, passed);
        }
    }
    let long = format!(r#"{{"tool":"{}"}}"#, ".a".repeat(100_000));
    assert_error(
        &call(&gateway, "macos_notes", &long).await,
        CallErrorKind::NotFound,
        "there is no tool",
    );
    assert_error(
        &call(&gateway, "macos_notes", r#"{"tool":"a b"}"#).await,
        CallErrorKind::NotFound,
        "macos.notes.a b",
    );
    gateway.assert_clean();
}

#[tokio::test]
async fn underscore_names_reach_dotted_tools_below_the_longest_open_one() {
    let gateway = gateway(RouterOptions::default());
    let (wide, _wide) = connect(&gateway, "wide", "g", open("macos"));
    let (notes, _notes) = connect(&gateway, "notes", "g", open("macos.notes"));
    let (other, _other) = connect(&gateway, "other", "h", tools(&["macos_notes_listed"]));
    for (name, sent, tool) in [
        ("macos_notes_read_all", &notes, "macos.notes.read_all"),
        ("macos_clipboard", &wide, "macos.clipboard"),
        // A listed tool has its own name.
        ("macos_notes_listed", &other, "macos_notes_listed"),
    ] {
        assert!(call(&gateway, name, "{}").await.outcome.is_ok(), "{name}");
        check(sent, tool, "{}");
    }
    // The part before two underscores is a provider's id.
    for unknown in ["macos__notes", "macos_", "macosx_notes", "_macos"] {
        assert_error(
            &call(&gateway, unknown, "{}").await,
            CallErrorKind::NotFound,
            "there is no tool",
        );
    }
}

/// It makes no difference whether the provider describes some tools below the prefix.
#[tokio::test]
async fn underscore_names_reach_tools_below_a_described_prefix() {
    let policy = Policy { deny: vec![Pattern::new("demo_wipe"), Pattern::new("demo.drop")] };
    let gateway = gateway_under(policy, RouterOptions::default(), None);
    let described = Catalog { prefixes: vec!["demo".into()], ..tools(&["demo.echo", "demo.a.b"]) };
    let (node, _node) = connect(&gateway, "n", "g", described);
    for (name, tool) in [
        ("demo_x", "demo.x"),
        ("demo_x_y", "demo.x_y"),
        ("demo_echo", "demo.echo"),
        // A listed tool has its own name.
        ("demo_a_b", "demo.a.b"),
    ] {
        assert!(call(&gateway, name, "{}").await.outcome.is_ok(), "{name}");
        check(&node, tool, "{}");
        for (token, included) in [("demo_*", true), (name, true), (tool, true), ("demo", false)] {
            let may = call_as(&gateway, limited(&[token]), name, "{}").await.outcome.is_ok();
            assert_eq!(may, included, "{token} includes {name}");
        }
        node.lock().clear();
    }
    for denied in ["demo_wipe", "demo.wipe", "demo_drop", "demo.drop", "demo_DROP"] {
        let finished = call(&gateway, denied, "{}").await;
        assert_error(&finished, CallErrorKind::NotAllowed, "policy denies");
    }
    // A tool of another provider with exactly this name has precedence.
    let (other, _other) = connect(&gateway, "other", "h", tools(&["demo_x"]));
    assert!(call(&gateway, "demo_x", "{}").await.outcome.is_ok());
    check(&other, "demo_x", "{}");
    let hidden = call_as(&gateway, limited(&["demo_*"]), "demo.x", "{}").await;
    assert_error(&hidden, CallErrorKind::NotFound, "demo.x");
    assert!(node.lock().is_empty());
}

#[tokio::test]
async fn policy_and_tokens_decide_about_the_tool_below() {
    let policy = Policy { deny: vec![Pattern::new("macos.notes.delete"), Pattern::new("*_wipe")] };
    let gateway = gateway_under(policy, RouterOptions::default(), None);
    let (sent, _node) = connect(&gateway, "mac", "g", open("macos.notes"));
    for (tool, args) in [
        ("macos_notes", r#"{"tool":"delete"}"#),
        ("macos.notes", r#"{"tool":"DELETE"}"#),
        ("macos_notes_delete", "{}"),
        ("macos_notes", r#"{"tool":"wipe"}"#),
    ] {
        assert_error(&call(&gateway, tool, args).await, CallErrorKind::NotAllowed, "policy denies");
    }
    let below = r#"{"tool":"search"}"#;
    // A token for the listed tool covers the capability itself, and a token for names below it
    // covers those.
    for (patterns, listed, capability, search) in [
        (["macos_notes"], true, true, false),
        (["macos_notes*"], true, true, true),
        (["macos.notes*"], true, true, true),
        (["other"], false, false, false),
    ] {
        let view = limited(&patterns);
        assert_eq!(names(&gateway, &view).len(), usize::from(listed), "{patterns:?}");
        let may = [
            call_as(&gateway, view.clone(), "macos_notes", "{}").await,
            call_as(&gateway, view.clone(), "macos_notes", below).await,
        ]
        .map(|finished| {
            finished
                .outcome
                .map_err(|error| assert_eq!(error.kind, CallErrorKind::NotFound))
                .is_ok()
        });
        assert_eq!(may, [capability, search], "{patterns:?}");
    }
    sent.lock().clear();
    let view = limited(&["macos_notes_*"]);
    assert!(call_as(&gateway, view, "macos_notes_search", "{}").await.outcome.is_ok());
    check(&sent, "macos.notes.search", "{}");
}

/// A name below belongs to the grant that holds it, whichever open tool was called.
#[tokio::test]
async fn a_call_reaches_the_holder_of_the_name_below() {
    let gateway = gateway(RouterOptions::default());
    let (anyone, _anyone) = connect(&gateway, "anyone", "", open("macos"));
    let (known, _known) = connect(&gateway, "known", "g", open("macos.notes"));
    assert!(call(&gateway, "macos", r#"{"tool":"notes.search"}"#).await.outcome.is_ok());
    check(&known, "macos.notes.search", "{}");
    assert!(call(&gateway, "macos", r#"{"tool":"clipboard"}"#).await.outcome.is_ok());
    check(&anyone, "macos.clipboard", "{}");
    // Another grant gets no name for a prefix that this one holds, with or without a suffix.
    let (_, _thief) = connect(&gateway, "thief", "h", open("macos.notes"));
    assert_eq!(names(&gateway, &view()), ["macos", "macos_notes"]);
    assert!(
        gateway.directory.members("node").iter().all(|member| !member.host),
        "an open tool makes no host"
    );
}

#[tokio::test]
async fn the_second_provider_of_a_grant_is_reached_by_its_own_name() {
    let gateway = gateway(RouterOptions::default());
    let (first, _first) = connect(&gateway, "one", "g", open("macos.notes"));
    let (second, second_here) = connect(&gateway, "two", "g", open("macos.notes"));
    let listed = names(&gateway, &view());
    assert_eq!((listed.len(), &*listed[0]), (2, "macos_notes"));
    let below = r#"{"tool":"search"}"#;
    for (name, sent) in [(&listed[0], &first), (&listed[1], &second)] {
        assert!(call(&gateway, name, below).await.outcome.is_ok());
        check(sent, "macos.notes.search", "{}");
    }
    drop(second_here);
    simulate_offline(&gateway, &listed[1], below).await;
}

/// The requested provider is offline, and no other one replaces it.
async fn simulate_offline(gateway: &Gateway, name: &str, args: &str) {
    let args = RawJson::parse(args).unwrap();
    let timeout = Some(std::time::Duration::from_millis(50));
    let finished =
        gateway.router.start(CallRequest { args, timeout, ..request(name) }, None).outcome().await;
    assert_error(&finished, CallErrorKind::Offline, "disconnected");
}

fn host(tools_of: &[&str]) -> Catalog {
    let tool = |name: &&str| Tool { preferred_name: format!("host__{name}"), ..Tool::named(name) };
    Catalog { tools: tools_of.iter().map(tool).collect(), bare_names: true, ..Catalog::default() }
}

/// Returns the provider of a bare name.
async fn bare(gateway: &Gateway, name: &str) -> String {
    let finished = call(gateway, name, "{}").await;
    finished.outcome.unwrap().content.as_str().to_owned()
}

#[tokio::test]
async fn an_open_capability_does_not_take_a_bare_name_from_the_primary_host() {
    for name in ["Bash", "shell"] {
        let gateway = gateway(RouterOptions::default());
        let (_, _host) = connect(&gateway, "host", "h", host(&[name]));
        let (_, _thief) = connect(&gateway, "thief", "g", open(name));
        assert_eq!(bare(&gateway, name).await, "\"host\"");
        // A later provider changes nothing, and the capability is listed under another name.
        let (_, _late) =
            connect(&gateway, "late", "k", Catalog { preferred: true, ..host(&[name]) });
        assert_eq!(bare(&gateway, name).await, "\"late\"");
        let listed = names(&gateway, &view());
        assert!(
            !listed.contains(&name.to_owned())
                && listed.iter().any(|listed| listed.starts_with(&format!("{name}_")))
        );
        // A prefix without listed tools has no better claim.
        let (_, _plain) =
            connect(&gateway, "plain", "g", Catalog { bare_names: true, ..prefixes(&[name]) });
        assert_eq!(bare(&gateway, name).await, "\"late\"");
    }
    // No provider can claim a host-style name before the host attaches.
    let gateway = gateway(RouterOptions::default());
    let (_, _thief) = connect(&gateway, "thief", "g", open("Bash"));
    assert_eq!(bare(&gateway, "Bash").await, "\"thief\"");
    let (_, host_here) = connect(&gateway, "host", "h", host(&["Bash"]));
    assert_eq!(bare(&gateway, "Bash").await, "\"host\"");
    drop(host_here);
    simulate_offline(&gateway, "Bash", "{}").await;
}

#[tokio::test]
async fn a_bare_name_does_not_outrank_an_open_capability_that_is_listed() {
    let gateway = gateway(RouterOptions::default());
    let (_, thief) = connect(&gateway, "thief", "h", host(&["Bash"]));
    let (_, _node) = connect(&gateway, "node", "g", open("notes"));
    thief.publish(host(&["Bash", "notes"]));
    assert_eq!(bare(&gateway, "notes").await, "\"node\"");
    assert_eq!(names(&gateway, &view()), ["host__Bash", "host__notes", "notes"]);
}

/// `macos_notes_x` is also below `macos.notes`, and belongs to the better rank.
#[tokio::test]
async fn a_prefix_of_a_better_rank_holds_underscore_names_too() {
    for thieves in [
        tools(&["macos.notes_x", "macos.notes_y.z"]),
        open("macos.notes_x"),
        host(&["macos_notes_x"]),
    ] {
        let gateway = gateway(RouterOptions::default());
        let (thief, _thief) = connect(&gateway, "thief", "", thieves.clone());
        let (known, known_here) = connect(&gateway, "known", "g", open("macos.notes"));
        for (name, tool) in
            [("macos_notes_x", "macos.notes.x"), ("macos_notes_x_more", "macos.notes.x_more")]
        {
            assert!(call(&gateway, name, "{}").await.outcome.is_ok());
            check(&known, tool, "{}");
        }
        let listed = names(&gateway, &view());
        assert!(
            listed.iter().all(|name| name == "macos_notes" || !name.starts_with("macos_notes_")),
            "{listed:?}"
        );
        // The same applies while it is offline.
        drop(known_here);
        simulate_offline(&gateway, "macos_notes_x", "{}").await;
        assert!(thief.lock().is_empty());
    }
    // The same applies to a prefix with described tools.
    let gateway = gateway(RouterOptions::default());
    let (_, _thief) = connect(&gateway, "thief", "", tools(&["macos.notes_x"]));
    let described =
        Catalog { prefixes: vec!["macos.notes".into()], ..tools(&["macos.notes.search"]) };
    let (known, _known) = connect(&gateway, "known", "g", described);
    assert!(call(&gateway, "macos_notes_x", "{}").await.outcome.is_ok());
    check(&known, "macos.notes.x", "{}");
    assert_eq!(names(&gateway, &view()), ["macos_notes_search"]);
    // Its own dotted name is not below the prefix, and stays. At equal rank, listed names have
    // precedence.
    assert!(call(&gateway, "macos.notes_x", "{}").await.outcome.is_ok());
    let (other, _other) = connect(&gateway, "other", "h", tools(&["macos.notes_y"]));
    assert!(call(&gateway, "macos_notes_y", "{}").await.outcome.is_ok());
    check(&other, "macos.notes_y", "{}");
}
