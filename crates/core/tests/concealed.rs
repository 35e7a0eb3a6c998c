//! Rule: to a token that is for some tools only, every other tool looks like one that does not
//! exist.

mod support;

use std::sync::Arc;

use sa_core::call::CallRequest;
use sa_core::{CallError, CallErrorKind, Catalog, Pattern, Principal, Role, Tool, View};
use support::{Gateway, answering, attach, gateway, ok, request, simulate};

/// Limited tokens: for other tools, for channels, for models, and one that names nothing.
fn limited() -> Vec<Principal> {
    let other = || vec![Pattern::new("other*")];
    let agent = || Principal::new("p", "test", Role::Agent);
    vec![
        Principal { tools: other(), ..agent() },
        Principal { channels: other(), ..agent() },
        Principal { models: other(), ..agent() },
        Principal::new("p", "test", Role::Participant),
    ]
}

fn call(gateway: &Gateway, principal: &Principal, name: &str) -> CallError {
    let request = CallRequest { view: View::of(Arc::new(principal.clone())), ..request(name) };
    simulate(gateway.router.start(request, None).outcome()).outcome.unwrap_err()
}

/// The visible parts of an error, without the tool's name.
fn seen(error: &CallError, name: &str) -> (CallErrorKind, String, String, bool) {
    let hint = error.hint.as_deref().unwrap_or_default().to_owned();
    (error.kind, error.message.replace(name, "NAME"), hint, error.retryable)
}

#[test]
fn a_tool_that_a_token_does_not_include_is_as_good_as_none() {
    let gateway = gateway(sa_core::RouterOptions::default());
    let tools = ["secret.read", "Secret"].map(Tool::named).to_vec();
    let prefixes = vec!["secret.open".to_owned()];
    let catalog = Catalog { tools, prefixes, bare_names: true, ..Catalog::default() };
    let provider = answering(|_, _| Box::pin(std::future::ready(ok("1"))));
    let mut here =
        Some(gateway.directory.attach(attach("canary", "g", catalog, provider)).unwrap());
    for state in ["here", "away"] {
        for principal in limited() {
            let none = call(&gateway, &principal, "nowhere");
            assert!(!none.is_refusal());
            for name in [
                "secret.read",
                "secret_read",
                "Secret",
                "canary__Secret",
                "secret.open.x",
                "SECRET.READ",
            ] {
                let error = call(&gateway, &principal, name);
                assert_eq!(
                    seen(&error, name),
                    seen(&none, "nowhere"),
                    "{name} of {principal:?}, {state}"
                );
            }
            // The audit log still records the refusal.
            assert!(call(&gateway, &principal, "secret_read").is_refusal(), "{state}");
            // A misspelled name is not corrected.
            let error = call(&gateway, &principal, "secret_reed");
            assert_eq!(seen(&error, "secret_reed"), seen(&none, "nowhere"));
        }
        drop(here.take());
    }
}
