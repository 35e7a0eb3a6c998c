//! Rule: a denied tool is denied under every name that it has, could have or is called by. It makes
//! no difference whether the tool is described or its provider is online. A token includes a tool
//! only by the names that lead to it, and the same tool under each of them.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, Registration};
use sa_core::*;
use support::*;

/// A gateway with one node `mac` that answers every call. The node has the open prefix `mac.notes`,
/// and describes these tools.
struct Scene {
    gateway: Gateway,
    registration: Option<Registration>,
}

impl Scene {
    fn new(deny: &[&str], described: &[&str]) -> Self {
        let policy = Policy { deny: deny.iter().map(|text| Pattern::new(text)).collect() };
        let gateway = gateway_under(policy, RouterOptions::default(), None);
        let describe = |name: &&str| Tool {
            preferred_name: if name.contains('.') {
                (*name).to_owned()
            } else {
                format!("mac__{name}")
            },
            ..Tool::named(name)
        };
        let tools = described.iter().map(describe).collect();
        let catalog = Catalog { tools, bare_names: true, ..prefixes(&["mac.notes"]) };
        let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
        let registration =
            Some(gateway.directory.attach(attach("mac", "g", catalog, provider)).unwrap());
        Self { gateway, registration }
    }

    /// Returns the result of a call by this name with a token for these tools, or for all of them.
    fn call(&self, name: &str, tools: &[&str]) -> Result<(), CallErrorKind> {
        let request = CallRequest { view: view_of(tools), ..request(name) };
        let finished = simulate(self.gateway.router.start(request, None).outcome());
        finished.outcome.map(drop).map_err(|error| error.kind)
    }

    /// Returns the tools in the list of a token for these tools, or for all of them.
    fn listed(&self, tools: &[&str]) -> Vec<Arc<str>> {
        let (view, policy) = (view_of(tools), self.gateway.router.policy());
        let allowed = |tool: &directory::ToolView| policy.allows(&view.principal, tool);
        let page = self.gateway.directory.list(&view, None, 100, allowed);
        page.tools.into_iter().map(|tool| tool.name).collect()
    }
}

/// Returns the view of a token for these tools, or for all of them.
fn view_of(tools: &[&str]) -> View {
    let tools = tools.iter().map(|text| Pattern::new(text)).collect();
    View::of(Arc::new(Principal { tools, ..Principal::new("p", "test", Role::Agent) }))
}

const DENIED: Result<(), CallErrorKind> = Err(CallErrorKind::NotAllowed);

/// A tool that a token does not include looks like a missing one.
const HIDDEN: Result<(), CallErrorKind> = Err(CallErrorKind::NotFound);

#[track_caller]
fn check(deny: &str, name: &str, expected: Result<(), CallErrorKind>) {
    let mut scene = Scene::new(&[deny], &["mac.notes.list", "Secret"]);
    assert_eq!(scene.call(name, &[]), expected, "{deny} on {name}");
    if expected == DENIED {
        scene.registration = None;
        assert_eq!(scene.call(name, &[]), expected, "{deny} on {name}, which is away");
    }
}

#[test]
fn a_denial_holds_for_every_name_of_a_tool() {
    for name in ["mac_notes_list", "mac.notes.list", "mac.notes.delete"] {
        check("mac_notes_*", name, DENIED);
        check("mac.notes.*", name, DENIED);
    }
    check("mac_notes_delete", "mac.notes.delete", DENIED);
    check("mac_notes_delete", "mac.notes.list", Ok(()));
    check("mac_notes_delete", "mac.notes.delete.all", Ok(()));
    for deny in ["Secret", "mac__Secret", "mac__*"] {
        for name in ["Secret", "mac__Secret"] {
            check(deny, name, DENIED);
        }
    }
}

#[test]
fn the_longer_name_of_a_tool_is_denied_while_it_has_the_plain_one() {
    let tool = Tool::named("mac.notes.list");
    let longer = tool
        .all_names(&ProviderId::new("node", "mac"))
        .into_iter()
        .find(|name| name.starts_with("mac_notes_list_"))
        .unwrap();
    check(&longer, "mac.notes.list", DENIED);
    check(&longer, "mac_notes_list", DENIED);
    check(&longer, "mac.notes.delete", Ok(()));
}

#[test]
fn a_denial_ignores_case() {
    for (deny, name) in [
        ("mac.notes.LIST", "mac.notes.list"),
        ("MAC_NOTES_*", "mac.notes.delete"),
        ("secret", "mac__Secret"),
        ("mac.notes.ÖFFNE", "mac.notes.öffne"),
    ] {
        check(deny, name, DENIED);
    }
}

#[test]
fn rules_cover_the_id_of_a_node_in_both_spellings() {
    let spellings = ["my.laptop__Bash", "my_laptop__Bash"];
    let patterns = ["my.laptop__*", "my_laptop__*", "my.laptop__Bash", "my_laptop__Bash"];
    for (pattern, name) in patterns.iter().flat_map(|pattern| spellings.map(|name| (pattern, name)))
    {
        for denied in [false, true] {
            let deny = [*pattern];
            let scene = Scene::new(&deny[..usize::from(denied)], &[]);
            let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
            let bash = Tool { preferred_name: spellings[0].into(), ..Tool::named("Bash") };
            let catalog = Catalog { tools: vec![bash], ..Catalog::default() };
            let directory = &scene.gateway.directory;
            let node = directory.attach(attach("my.laptop", "g", catalog, provider)).unwrap();
            let expected = if denied { DENIED } else { Ok(()) };
            assert_eq!(scene.call(name, &[pattern]), expected, "{pattern} for {name}");
            assert_eq!(scene.call(name, &["other"]), HIDDEN);
            assert_eq!(scene.listed(&[pattern]).is_empty(), denied, "{pattern}");
            assert_eq!(scene.listed(&[]).is_empty(), denied, "{pattern}");
            drop(node);
            let expected = if denied { DENIED } else { Err(CallErrorKind::Offline) };
            assert_eq!(scene.call(name, &[pattern]), expected, "{pattern} for {name}, offline");
        }
    }
}

#[test]
fn a_server_that_is_not_listed_yet_is_denied_by_short_names_too() {
    let scene = Scene::new(&["send"], &[]);
    let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
    let catalog = Catalog { unlisted: true, ..Catalog::default() };
    let _server = scene.gateway.directory.attach(attach("mail", "g", catalog, provider)).unwrap();
    assert_eq!(scene.call("mail__send", &[]), DENIED);
    assert_eq!(scene.call("mail__read", &[]), Ok(()));
}

#[test]
fn a_token_includes_no_tool_by_a_name_that_another_one_could_have() {
    let scene = Scene::new(&[], &["mac.notes.list"]);
    assert_eq!(scene.call("mac.notes.list", &["mac_notes_*"]), Ok(()));
    for token in ["mac.notes.*", "mac_notes_*", "mac_notes_delete"] {
        assert_eq!(scene.call("mac.notes.delete", &[token]), Ok(()), "{token}");
    }
    let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
    let directory = &scene.gateway.directory;
    let other = attach("other", "h", tools(&["mac_notes_delete"]), provider);
    let _other = directory.attach(other).unwrap();
    assert_eq!(scene.call("mac.notes.delete", &["mac.notes.*"]), Ok(()));
    assert_eq!(scene.call("mac.notes.delete", &["mac_notes_*"]), HIDDEN);
    assert_eq!(scene.call("mac.notes.delete", &["mac_notes_delete"]), HIDDEN);
    assert_eq!(scene.call("mac_notes_delete", &["mac_notes_delete"]), Ok(()));
}

/// All names of a tool, and the registrations of its providers.
type Named = (Vec<String>, Vec<Registration>);

/// A tool of each kind.
fn every_kind() -> (Gateway, Vec<Named>) {
    let gateway = gateway(RouterOptions::default());
    let offer = |kind, id: &str, grant, catalog| {
        let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
        let attach =
            Attach { id: ProviderId::new(kind, id), grant, ..attach("", "", catalog, provider) };
        gateway.directory.attach(attach).unwrap()
    };
    let one = |tool: Tool| Catalog { tools: vec![tool], bare_names: true, ..Catalog::default() };
    let names = |kind, id: &str, tool: &Tool| tool.all_names(&ProviderId::new(kind, id));
    let dotted = Tool::named("office.greet");
    let bare = Tool { preferred_name: "mac__Bash".into(), ..Tool::named("Bash") };
    let upstream = Tool { short: Some("send".into()), ..Tool::named("mail__send") };
    let stood_in_for = Tool::named("home.light");
    let kinds = vec![
        (names("node", "py", &dotted), vec![offer("node", "py", Grant::token("g"), one(dotted))]),
        (names("node", "mac", &bare), vec![offer("node", "mac", Grant::none(), one(bare))]),
        (
            names("upstream", "mail", &upstream),
            vec![offer("upstream", "mail", Grant::installed("u"), one(upstream))],
        ),
        (names("node", "second", &stood_in_for), {
            // The plain name belongs to the first provider, which is offline.
            drop(offer("node", "first", Grant::token("h"), one(stood_in_for.clone())));
            vec![offer("node", "second", Grant::token("h"), one(stood_in_for))]
        }),
    ];
    (gateway, kinds)
}

#[test]
fn every_name_of_a_tool_includes_it_and_denies_it() {
    let (gateway, kinds) = every_kind();
    let called = |name: &str, tools: &[&str], deny: &[&str]| {
        let patterns =
            |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect::<Vec<_>>();
        let principal = Principal { tools: patterns(tools), ..(*principal()).clone() };
        let view = View::of(Arc::new(principal));
        let route = gateway.directory.resolve(name, &view).unwrap();
        let policy = Policy { deny: patterns(deny) };
        let is_visible = |tool: &directory::ToolView| {
            tool.provider == route.id && policy.allows(&view.principal, tool)
        };
        let listed = !gateway.directory.list(&view, None, 100, is_visible).tools.is_empty();
        let all = || route.tool.all_names(&route.id);
        let may =
            policy.authorise(&view.principal, &route.scope, name, &route.leading, all).is_ok();
        assert_eq!(may, listed, "lists and calls agree: {name}, {tools:?}, {deny:?}");
        may
    };
    for (names, _registrations) in &kinds {
        assert!(names.len() >= 3, "{names:?}");
        for name in names {
            for rule in names {
                assert!(called(name, &[rule], &[]), "{rule} includes {name}");
                assert!(!called(name, &[], &[rule]), "{rule} denies {name}");
                assert!(!called(name, &[rule], &[rule]), "a denial goes first");
            }
            for (others, _) in kinds.iter().filter(|(others, _)| others != names) {
                assert!(others.iter().all(|other| !called(name, &[other], &[])), "{name}");
                assert!(others.iter().all(|other| called(name, &[], &[other])), "{name}");
            }
        }
    }
}

/// Few different characters, so that patterns match.
fn pattern() -> impl Strategy<Value = String> {
    "(mac)?[*]?[._]?(notes)?[*]?[._]?[ab]?[._]?[ab*]?"
}

fn own_name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "mac[.]notes([.][ab_]{1,3}){1,2}", 1 => "[ab]{1,3}"]
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn rules_are_about_tools_and_not_about_spellings(
        deny in pattern(),
        token in pattern(),
        own in own_name(),
        described in any::<bool>(),
    ) {
        prop_assume!(described || own.contains('.'));
        let tools: &[&str] = if described { &[&own] } else { &[] };
        let open = Scene::new(&[], tools);
        let route = open.gateway.directory.resolve(&own, &view()).unwrap();
        // A described tool can be called by its suffixed name, too.
        let suffixed = described.then(|| route.tool.all_names(&route.id).remove(1));
        let plain = if own.contains('.') { own.replace('.', "_") } else { format!("mac__{own}") };
        // A tool that is not described can have one dot below the prefix in this spelling.
        let spelled = !described && own.matches('.').count() == 2 && !plain.contains("__");
        let leading = route.exposed.as_deref().into_iter().chain([&*own]).chain(suffixed.as_deref());
        let leading: Vec<&str> = leading.chain(spelled.then_some(&*plain)).collect();
        let matches = |pattern: &str, name: &str| Pattern::new(pattern).matches(name);
        let aliases = [naming::with_hash(&plain, &format!("node/mac/{own}")), plain.clone()];

        let included = leading.iter().any(|name| matches(&token, name));
        let denied = leading.iter().copied().chain(aliases.iter().map(String::as_str)).any(|name| matches(&deny, name));
        let closed = Scene::new(&[&deny], tools);
        for name in &leading {
            prop_assert_eq!(open.call(name, &[&token]).is_ok(), included, "{} for {}", &token, name);
            prop_assert_eq!(closed.call(name, &[]).is_err(), denied, "{} denies {}", &deny, name);
            prop_assert_eq!(closed.call(name, &[&token]).is_ok(), included && !denied, "a denial goes before a token");
        }
        let page = closed.gateway.directory.list(&view(), None, 10, |tool| closed.gateway.router.policy().allows(&principal(), tool));
        prop_assert_eq!(page.tools.len(), usize::from(described && !denied), "lists and calls agree");
    }
}
