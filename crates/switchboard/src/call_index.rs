//! By what ended calls are found in the history: tool, principal and outcome.

use std::borrow::Cow;
use std::path::PathBuf;

use sa_core::store::Label;
use sa_store::{Labelled, OpenOptions};
use serde::Deserialize;

use crate::journal::CALLS;

/// How the gateway's store is opened, by everyone who opens it: an index is only as good as its writers.
pub(crate) fn store_options(file: PathBuf) -> OpenOptions {
    OpenOptions { labelled: Some(Labelled { stream: CALLS, of: labels }), ..OpenOptions::new(file) }
}

/// The part of a stored call that decides who may see it and which filters it matches.
#[derive(Deserialize)]
pub(crate) struct CallSummary<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) tool: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) exposed: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) principal: PrincipalSummary<'a>,
    ok: bool,
    #[serde(borrow)]
    error: Option<ErrorSummary<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct PrincipalSummary<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ErrorSummary<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl CallSummary<'_> {
    /// `ok`, or the kind of error.
    pub(crate) fn outcome(&self) -> &str {
        if self.ok { "ok" } else { self.error.as_ref().map_or("failed", |error| &error.kind) }
    }
}

fn labels(body: &[u8], labels: &mut Vec<Label>) {
    let Ok(call) = serde_json::from_slice::<CallSummary<'_>>(body) else { return };
    labels.push(tool(&call.tool));
    labels.extend(call.exposed.as_deref().map(tool));
    labels.push(principal(&call.principal.id));
    labels.push(outcome(call.outcome()));
}

/// The label of calls of a tool, by any of its names.
pub(crate) fn tool(name: &str) -> Label {
    Label::new("tool", name)
}

pub(crate) fn principal(id: &str) -> Label {
    Label::new("principal", id)
}

pub(crate) fn outcome(outcome: &str) -> Label {
    Label::new("outcome", outcome)
}
