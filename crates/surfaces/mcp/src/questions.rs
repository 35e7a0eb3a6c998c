//! Questions of providers to the client that made a call: a completion by its model, input by a
//! person, its roots.
//!
//! Up to 2025-11-25 a question is a request to the client, on the stream of the call. From
//! 2026-07-28 on it is the answer to the call: the client collects the input and repeats its
//! request with it. The call waits here meanwhile. It is stored under a random name, and only for
//! its own principal, tool and arguments.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, CreateMessageResult, CustomRequest, ElicitResult,
    ElicitationCapability, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    JsonObject, ListRootsResult, RootsCapabilities, SamplingCapability, ServerRequest,
};
use rmcp::{ErrorData, Peer, RoleServer};
use sa_core::{CallError, CallErrorKind, Question, RawJson};
use sa_http::MCP;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::Running;
use crate::convert;

/// The maximum number of calls that wait for their clients.
const MAX_SUSPENDED: usize = 1_000;
/// The time for which a call waits for its client.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A question, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Result<RawJson, CallError>>,
}

const SAMPLING: &str = "sampling/createMessage";
const ELICITATION: &str = "elicitation/create";
const ROOTS: &str = "roots/list";
/// The key of the provider's name for its question, in the `_meta` of the params.
const NAME: &str = "switchboard/question";
const MAX_NAME: usize = 128;

/// Returns whether the client has declared that it can answer any question.
pub(crate) fn answers_some(client: &ClientCapabilities) -> bool {
    client.sampling.is_some() || client.roots.is_some() || client.elicitation.is_some()
}

/// Returns whether the client has declared that it can answer this question.
pub(crate) fn answers(client: &ClientCapabilities, question: &Question) -> bool {
    if question.params.format != MCP {
        return false;
    }
    match question.kind.as_str() {
        SAMPLING => client.sampling.is_some(),
        ROOTS => client.roots.is_some(),
        ELICITATION => client.elicitation.as_ref().is_some_and(|can| {
            let by_url = value(&question.params.json)["mode"] == "url";
            // A client that names no mode supports forms, which were once the only mode.
            if by_url { can.url.is_some() } else { can.form.is_some() || can.url.is_none() }
        }),
        _ => false,
    }
}

/// Sends a question to the client as a request, unchanged.
pub(crate) async fn send(peer: &Peer<RoleServer>, mut pending: PendingQuestion) {
    // A request needs no name.
    own_name(&mut pending.question);
    let params = Some(value(&pending.question.params.json)).filter(|params| !params.is_null());
    let request = ServerRequest::CustomRequest(CustomRequest::new(pending.question.kind, params));
    let answer = match peer.send_request(request).await {
        Ok(answer) => Ok(RawJson::of(&serde_json::to_value(answer).unwrap_or_default())),
        Err(error) => {
            Err(CallError::new(CallErrorKind::Failed, format!("the client's answer: {error}")))
        }
    };
    // The provider may have stopped waiting meanwhile.
    let _ = pending.answer.send(answer);
}

/// Returns the capability that a client must declare for this question.
pub(crate) fn required_capability(what: &str) -> ClientCapabilities {
    let mut required_capability = ClientCapabilities::default();
    match what {
        SAMPLING => required_capability.sampling = Some(SamplingCapability::default()),
        ROOTS => required_capability.roots = Some(RootsCapabilities::default()),
        _ => required_capability.elicitation = Some(ElicitationCapability::default()),
    }
    required_capability
}

/// Gives each question the name that its provider uses for it, or a number. The names within one
/// call are unique.
pub(crate) fn name(
    questions: Vec<PendingQuestion>,
    count: &mut usize,
) -> BTreeMap<String, PendingQuestion> {
    let mut named = BTreeMap::new();
    for mut pending in questions {
        *count += 1;
        let own = own_name(&mut pending.question).filter(|name| !named.contains_key(name));
        named.insert(own.unwrap_or_else(|| format!("question-{count}")), pending);
    }
    named
}

/// Removes and returns the provider's name from the question's `_meta`. A provider that forwards
/// questions of another server forwards their names, too.
fn own_name(question: &mut Question) -> Option<String> {
    let mut params = value(&question.params.json);
    let meta = params.get_mut("_meta")?.as_object_mut()?;
    let name = meta.remove(NAME)?;
    let rest_is_empty = meta.is_empty();
    if rest_is_empty {
        params.as_object_mut()?.remove("_meta");
    }
    question.params.json = RawJson::of(&params);
    name.as_str().filter(|name| (1..=MAX_NAME).contains(&name.len())).map(str::to_owned)
}

/// Answers questions with the answers that the client has sent. Unused answers remain in `answers`.
pub(crate) fn answer(
    pending: &mut BTreeMap<String, PendingQuestion>,
    answers: &mut InputResponses,
) {
    for name in pending.keys().cloned().collect::<Vec<_>>() {
        let fits = |answer: &Value| {
            pending.get(&name).is_some_and(|pending| is_answer(&pending.question.kind, answer))
        };
        // An answer in the wrong form counts as missing.
        if let Some(answer) = answers.remove(&name).filter(fits)
            && let Some(pending) = pending.remove(&name)
        {
            let _ = pending.answer.send(Ok(RawJson::of(&answer)));
        }
    }
}

/// The calls that wait for answers of their clients.
#[derive(Default)]
pub(crate) struct SuspendedCalls(Mutex<HashMap<String, Entry>>);

/// The identity of a call: a client can continue only its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallIdentity {
    pub(crate) principal: Arc<str>,
    pub(crate) tool: String,
    /// The parsed arguments, because a client may write them differently when it returns.
    pub(crate) arguments: JsonObject,
}

struct Entry {
    identity: CallIdentity,
    running: Running,
    pending: BTreeMap<String, PendingQuestion>,
    since: Instant,
    /// The number of questions so far: each has its own key.
    count: usize,
}

/// The state of a call after its client has returned.
pub(crate) enum Resumed {
    /// All questions are answered, and the call can be followed again. The number counts its
    /// questions.
    Answered(Running, usize),
    /// Some answers are still missing.
    Incomplete(InputRequiredResult),
}

impl SuspendedCalls {
    /// Stores a call until its client returns with answers. `count` is the number of its earlier
    /// questions.
    pub(crate) fn suspend(
        &self,
        identity: CallIdentity,
        count: usize,
        running: Running,
        mut pending: BTreeMap<String, PendingQuestion>,
    ) -> CallToolResponse {
        let unsupported: Vec<_> =
            pending.extract_if(.., |_, pending| request(&pending.question).is_none()).collect();
        for (_, one) in unsupported {
            let error =
                format!("a {} of this form cannot be sent to the client", one.question.kind);
            let _ = one.answer.send(Err(CallError::new(CallErrorKind::Failed, error)));
        }
        // Each round has a new id, so that no answer counts twice.
        let state = Uuid::new_v4().to_string();
        let entry =
            Entry { identity, running: running.detach(), pending, since: Instant::now(), count };
        let result = entry.result(&state);
        let mut table = self.table();
        if table.len() >= MAX_SUSPENDED {
            let error =
                format!("{MAX_SUSPENDED} calls are already waiting for answers from their clients");
            return convert::failure(&CallError::new(CallErrorKind::Overloaded, error)).into();
        }
        table.insert(state, entry);
        result.into()
    }

    /// Handles a returning client. Answers to unknown questions are ignored.
    pub(crate) fn resume(
        &self,
        state: &str,
        identity: &CallIdentity,
        mut answers: InputResponses,
    ) -> Result<Resumed, ErrorData> {
        let mut table = self.table();
        let known = table.get(state).is_some_and(|entry| entry.identity == *identity);
        let Some(mut entry) = known.then(|| table.remove(state)).flatten() else {
            let message =
                "the requestState does not belong to this call; start the call again without it";
            return Err(ErrorData::invalid_params(message, None));
        };
        answer(&mut entry.pending, &mut answers);
        if entry.pending.is_empty() {
            return Ok(Resumed::Answered(entry.running, entry.count));
        }
        entry.since = Instant::now();
        let result = entry.result(state);
        table.insert(state.to_owned(), entry);
        Ok(Resumed::Incomplete(result))
    }

    /// Drops calls that waited too long for their clients.
    pub(crate) fn sweep(&self) {
        let gone: Vec<_> =
            self.table().extract_if(|_, entry| entry.since.elapsed() >= TIMEOUT).collect();
        drop(gone);
    }

    fn table(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock()
    }
}

impl Entry {
    fn result(&self, state: &str) -> InputRequiredResult {
        InputRequiredResult::new(Some(requests(&self.pending)), Some(state.to_owned()))
    }
}

/// Returns the questions as MCP requests.
pub(crate) fn requests(pending: &BTreeMap<String, PendingQuestion>) -> InputRequests {
    pending
        .iter()
        .filter_map(|(name, pending)| Some((name.clone(), request(&pending.question)?)))
        .collect()
}

fn request(question: &Question) -> Option<InputRequest> {
    let mut request = json!({ "method": question.kind });
    let params = value(&question.params.json);
    if !params.is_null() {
        request["params"] = params;
    }
    serde_json::from_value(request).ok()
}

fn is_answer(what: &str, answer: &Value) -> bool {
    match what {
        SAMPLING => serde_json::from_value::<CreateMessageResult>(answer.clone()).is_ok(),
        ELICITATION => serde_json::from_value::<ElicitResult>(answer.clone()).is_ok(),
        ROOTS => serde_json::from_value::<ListRootsResult>(answer.clone()).is_ok(),
        _ => answer.is_object(),
    }
}

fn value(json: &RawJson) -> Value {
    serde_json::from_str(json.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_core::Passthrough;

    use super::*;

    const WORDS: &[&str] = &[
        "_meta",
        NAME,
        "message",
        "requestedSchema",
        "type",
        "object",
        "messages",
        "maxTokens",
        "action",
        "accept",
        "roots",
    ];

    proptest! {
        #[test]
        fn the_name_of_a_question_is_removed_from_its_params(params in sa_hostile::json(WORDS), answer in sa_hostile::json(WORDS)) {
            for what in [SAMPLING, ELICITATION, ROOTS, "other"] {
                let mut question = Question { kind: what.into(), params: Passthrough::new(MCP, RawJson::of(&params)) };
                let name = own_name(&mut question);
                prop_assert!(name.is_none_or(|name| (1..=MAX_NAME).contains(&name.len())));
                let left = question.params.json.to_value().unwrap();
                prop_assert!(left["_meta"].get(NAME).is_none());
                let _ = (request(&question), is_answer(what, &answer));
            }
        }
    }
}
