//! Resources, prompts and completions of the providers that have them.
//!
//! The name of a prompt is `{provider}__{prompt}`. A resource keeps its URI, because results of
//! tools link to it. If two providers list the same URI, the second is listed as
//! `{provider}+{uri}`, a form that is accepted for every resource. The last list of an offline
//! provider stays visible, and its items are marked.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, ErrorCode, GetPromptRequestParams, GetPromptResponse,
    InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    PaginatedRequestParams, Prompt, ReadResourceRequestParams, ReadResourceResponse, Resource,
    ResourceTemplate, ServerRequest,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use sa_core::{
    CallError, CallErrorKind, DocumentAnswer, DocumentError, Documents, DocumentsView, Listing,
    Overrun, Question, QuestionMode, RawJson, Router, Scope, Update, UpdateSink, View, Watch,
};
use sa_http::MCP;
use sa_limits::offload;
use sa_text::json::why;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{body, convert};

/// The maximum number of items on one page of a list.
const PAGE: usize = 500;

/// The documents that one request may see.
pub(crate) struct Passthrough<'a> {
    router: &'a Router,
    view: View,
    sources: Vec<DocumentsView>,
}

/// The likelihood that a provider has a resource, the most likely first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likelihood {
    Named,
    Listed,
    FromTemplate,
    Perhaps,
}

/// A provider that may have a resource, with its own URI for it.
struct Candidate<'a> {
    likelihood: Likelihood,
    source: &'a DocumentsView,
    uri: String,
}

impl<'a> Passthrough<'a> {
    pub(crate) fn new(router: &'a Router, view: View) -> Self {
        let mut sources = router.directory().documents(&view);
        sources.retain(|source| source.documents.format() == MCP);
        Self { router, view, sources }
    }

    pub(crate) async fn resources(
        &self,
        page: Option<PaginatedRequestParams>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = self.uris(Listing::Resources, "uri").await;
        result(paged::<Resource>("resources", listed, page)?)
    }

    pub(crate) async fn templates(
        &self,
        page: Option<PaginatedRequestParams>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listed = self.uris(Listing::Templates, "uriTemplate").await;
        result(paged::<ResourceTemplate>("resourceTemplates", listed, page)?)
    }

    pub(crate) async fn prompts(
        &self,
        page: Option<PaginatedRequestParams>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut prompts = Vec::new();
        for source in &self.sources {
            for mut prompt in read(source, Listing::Prompts).await {
                let name = format!(
                    "{}__{}",
                    source.provider.id,
                    prompt["name"].as_str().unwrap_or_default()
                );
                if self.may(&name) {
                    prompt["name"] = json!(name);
                    mark(&mut prompt, source);
                    prompts.push(prompt);
                }
            }
        }
        result(paged::<Prompt>("prompts", prompts, page)?)
    }

    pub(crate) async fn read(
        &self,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let unknown = || {
            let data = json!({ "uri": request.uri });
            ErrorData::resource_not_found(
                format!("no resource has the URI \"{}\"", request.uri),
                Some(data),
            )
        };
        let mut last = unknown();
        for holder in self.holders(&request.uri, Listing::Resources).await {
            let mut params = value(&request)?;
            params["uri"] = json!(holder.uri);
            match self.ask(&holder.source.documents, "resources/read", &params, context).await {
                Ok(answer) => {
                    return Ok(match input_required(&answer) {
                        Some(required) => ReadResourceResponse::InputRequired(required),
                        None => ReadResourceResponse::Complete(result(answer)?),
                    });
                }
                // An offline provider may have it, but others are asked first. If it only might
                // have it, its error is dropped.
                Err(FailedRequest { error, offline: true }) => {
                    if holder.likelihood < Likelihood::Perhaps {
                        last = error;
                    }
                }
                Err(FailedRequest { error, .. })
                    if matches!(
                        error.code,
                        ErrorCode::RESOURCE_NOT_FOUND | ErrorCode::INVALID_PARAMS
                    ) =>
                {
                    last = error;
                }
                Err(FailedRequest { error, .. }) => return Err(error),
            }
        }
        Err(last)
    }

    pub(crate) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let (source, name) = self.holder_of_prompt(&request.name).await?;
        let mut params = value(&request)?;
        params["name"] = json!(name);
        let answer = self.ask(&source.documents, "prompts/get", &params, context).await?;
        Ok(match input_required(&answer) {
            Some(required) => GetPromptResponse::InputRequired(required),
            None => GetPromptResponse::Complete(result(answer)?),
        })
    }

    pub(crate) async fn complete(
        &self,
        request: CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let mut params = value(&request)?;
        let documents = if let Some(name) = params["ref"]["name"].as_str() {
            let (source, name) = self.holder_of_prompt(name).await?;
            params["ref"]["name"] = json!(name);
            &source.documents
        } else {
            let uri = params["ref"]["uri"].as_str().unwrap_or_default().to_owned();
            let mut holders = self.holders(&uri, Listing::Templates).await;
            if holders.is_empty() {
                return Err(ErrorData::invalid_params(
                    format!("no resource has the URI \"{uri}\""),
                    None,
                ));
            }
            let holder = holders.remove(0);
            params["ref"]["uri"] = json!(holder.uri);
            &holder.source.documents
        };
        result(self.ask(documents, "completion/complete", &params, context).await?)
    }

    /// Watches a resource under any of its names.
    pub(crate) async fn watch(
        &self,
        uri: &str,
        question_mode: QuestionMode,
    ) -> Result<Watch, ErrorData> {
        let mut last =
            ErrorData::resource_not_found(format!("no resource has the URI \"{uri}\""), None);
        for holder in self.holders(uri, Listing::Resources).await {
            match holder
                .source
                .documents
                .watch(&holder.uri, &self.view.principal.id, question_mode)
                .await
            {
                Ok(watch) => return Ok(watch),
                Err(refused) => last = error(refused),
            }
        }
        Err(last)
    }

    async fn ask(
        &self,
        documents: &Arc<dyn Documents>,
        method: &'static str,
        params: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, FailedRequest> {
        // A client of the newer protocol receives the question as an answer; an older one is asked
        // during the request.
        let older = context.protocol_version().is_none_or(|version| version.has_initialize());
        let sink = older.then(|| Arc::new(Client(context.peer.clone())) as Arc<dyn UpdateSink>);
        let request = documents.ask(method, RawJson::of(params), &self.view.principal, sink);
        let DocumentAnswer { json, held } = tokio::select! {
            answer = request => answer.map_err(|refused| FailedRequest { offline: refused.undelivered, error: error(refused) })?,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None).into()),
        };
        body::weigh(context, json.len(), held);
        let read = offload::run_queued(json.len(), || serde_json::from_str(json.as_str())).await;
        read.map_err(|error| ErrorData::internal_error(error.to_string(), None).into())
    }

    /// Returns all items of a kind that has URIs, without duplicates.
    async fn uris(&self, listing: Listing, key: &str) -> Vec<Value> {
        let (mut listed, mut seen) = (Vec::new(), std::collections::HashSet::new());
        for source in &self.sources {
            for mut item in read(source, listing).await {
                let uri = item[key].as_str().unwrap_or_default().to_owned();
                if !self.may(&format!("{}__{uri}", source.provider.id)) {
                    continue;
                }
                if !seen.insert(uri.clone()) {
                    item[key] = json!(format!("{}+{uri}", source.provider.id));
                }
                mark(&mut item, source);
                listed.push(item);
            }
        }
        listed
    }

    /// Returns the providers that may have a resource, the most likely first.
    async fn holders(&self, uri: &str, listing: Listing) -> Vec<Candidate<'_>> {
        let mut found: Vec<Candidate<'_>> = Vec::new();
        for source in &self.sources {
            let provider = &source.provider;
            if let Some(own) =
                uri.strip_prefix(&*provider.id).and_then(|rest| rest.strip_prefix('+'))
            {
                found.push(Candidate {
                    likelihood: Likelihood::Named,
                    source,
                    uri: own.to_owned(),
                });
                continue;
            }
            let has = |items: Vec<Value>, test: &dyn Fn(&Value) -> bool| items.iter().any(test);
            let exact = |item: &Value| item["uri"] == uri || item["uriTemplate"] == uri;
            let template = |item: &Value| {
                let literal =
                    item["uriTemplate"].as_str().and_then(|template| template.split('{').next());
                literal.is_some_and(|literal| !literal.is_empty() && uri.starts_with(literal))
            };
            let likelihood = if has(read(source, listing).await, &exact) {
                Likelihood::Listed
            } else if has(read(source, Listing::Templates).await, &template) {
                Likelihood::FromTemplate
            } else {
                Likelihood::Perhaps
            };
            found.push(Candidate { likelihood, source, uri: uri.to_owned() });
        }
        found.retain(|holder| self.may(&format!("{}__{}", holder.source.provider.id, holder.uri)));
        found.sort_by_key(|holder| holder.likelihood);
        // If a provider certainly has it, only that one is asked.
        if found.first().is_some_and(|holder| holder.likelihood <= Likelihood::Listed) {
            found.truncate(1);
        }
        found
    }

    /// Returns the provider of a prompt, and its own name for it. A prompt with a unique name may
    /// be requested by that name alone.
    async fn holder_of_prompt<'n>(
        &self,
        name: &'n str,
    ) -> Result<(&DocumentsView, &'n str), ErrorData> {
        let named = name.split_once("__").filter(|_| self.may(name)).and_then(|(server, own)| {
            Some((self.sources.iter().find(|source| &*source.provider.id == server)?, own))
        });
        if let Some(found) = named {
            return Ok(found);
        }
        let mut having = Vec::new();
        for source in self
            .sources
            .iter()
            .filter(|source| self.may(&format!("{}__{name}", source.provider.id)))
        {
            if read(source, Listing::Prompts).await.iter().any(|prompt| prompt["name"] == name) {
                having.push(source);
            }
        }
        match *having.as_slice() {
            [only] => Ok((only, name)),
            _ => Err(ErrorData::invalid_params(format!("no prompt has the name \"{name}\""), None)),
        }
    }

    /// Applies the access rules of tools for everyone, under the names that the documents would
    /// have as tools.
    fn may(&self, name: &str) -> bool {
        self.router
            .policy()
            .authorise(&self.view.principal, &Scope::Everyone, name, &[name.into()], Vec::new)
            .is_ok()
    }
}

/// Reads the list of a provider as trees. Items that are not objects are left out.
async fn read(source: &DocumentsView, listing: Listing) -> Vec<Value> {
    let items = source.documents.list(listing).await;
    let bytes = items.iter().map(RawJson::len).sum();
    offload::run_queued(bytes, || objects(&items)).await
}

fn objects(items: &[RawJson]) -> Vec<Value> {
    items.iter().filter_map(|item| item.to_value().ok()).filter(Value::is_object).collect()
}

/// A client that can be asked while its request runs.
struct Client(Peer<RoleServer>);

impl UpdateSink for Client {
    fn send(&self, _update: Update) -> Result<(), Overrun> {
        Ok(())
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<RawJson, CallError>> {
        let peer = self.0.clone();
        Box::pin(async move {
            let failed = |why: String| CallError::new(CallErrorKind::Failed, why);
            let params: Value =
                serde_json::from_str(question.params.json.as_str()).unwrap_or_default();
            let request = json!({ "method": question.kind, "params": params });
            let request: ServerRequest =
                serde_json::from_value(request).map_err(|error| failed(error.to_string()))?;
            let answer =
                peer.send_request(request).await.map_err(|error| failed(error.to_string()))?;
            Ok(RawJson::of(
                &serde_json::to_value(answer).map_err(|error| failed(error.to_string()))?,
            ))
        })
    }
}

/// Returns one page of a list. An invalid item is left out: the list combines many providers, and
/// one of them must not break it.
fn paged<T: DeserializeOwned>(
    key: &str,
    items: Vec<Value>,
    page: Option<PaginatedRequestParams>,
) -> Result<Value, ErrorData> {
    let wrong = || ErrorData::invalid_params("the cursor does not belong to this list", None);
    let cursor = page.and_then(|page| page.cursor);
    let from: usize = cursor.map_or(Ok(0), |cursor| cursor.parse()).map_err(|_| wrong())?;
    let more = items.len() > from.saturating_add(PAGE);
    let is_one = |item: &Value| T::deserialize(item).is_ok();
    let items: Vec<Value> = items.into_iter().skip(from).take(PAGE).filter(is_one).collect();
    let mut answer = json!({ key: items });
    if more {
        answer["nextCursor"] = json!((from + PAGE).to_string());
    }
    Ok(answer)
}

fn input_required(answer: &Value) -> Option<InputRequiredResult> {
    (answer["resultType"] == "input_required")
        .then(|| serde_json::from_value(answer.clone()).ok())
        .flatten()
}

fn value(request: &impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(request)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// An upstream of the older era sends no result type; clients of the newer one require it.
fn result<T: DeserializeOwned>(mut answer: Value) -> Result<T, ErrorData> {
    if let Some(answer) = answer.as_object_mut() {
        answer.entry("resultType").or_insert_with(|| json!("complete"));
    }
    serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(why(&error), None))
}

/// A request that a provider has not answered.
struct FailedRequest {
    error: ErrorData,
    /// The provider was offline.
    offline: bool,
}

impl From<ErrorData> for FailedRequest {
    fn from(error: ErrorData) -> Self {
        Self { error, offline: false }
    }
}

impl From<FailedRequest> for ErrorData {
    fn from(FailedRequest { error, .. }: FailedRequest) -> Self {
        error
    }
}

/// Marks a listed item of an offline provider.
fn mark(item: &mut Value, source: &DocumentsView) {
    if !source.online && item["_meta"].is_null() {
        item["_meta"] = json!({});
    }
    if !source.online
        && let Some(meta) = item["_meta"].as_object_mut()
    {
        meta.insert(convert::ONLINE.into(), json!(false));
    }
}

fn error(error: DocumentError) -> ErrorData {
    let data = error.data.and_then(|data| data.to_value().ok());
    ErrorData::new(ErrorCode(error.code), error.message, data)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: &[&str] = &[
        "uri",
        "uriTemplate",
        "name",
        "title",
        "description",
        "mimeType",
        "_meta",
        "arguments",
        "a",
    ];

    fn items() -> impl Strategy<Value = Vec<RawJson>> {
        let item = prop_oneof![
            sa_hostile::json(WORDS),
            Just(json!({ "uri": "a:b", "uriTemplate": "a:{b}", "name": "n" }))
        ];
        prop::collection::vec(item.prop_map(|item| RawJson::of(&item)), 0..6)
    }

    fn renamed(items: &[RawJson], key: &str) -> Vec<Value> {
        let mut items = objects(items);
        for item in &mut items {
            item[key] = json!("mail+a:b");
        }
        items
    }

    proptest! {
        #[test]
        fn an_invalid_item_does_not_break_the_list(items in items()) {
            let good = items.iter().filter(|item| item.as_str().contains("a:{b}")).count();
            let resources = paged::<Resource>("resources", renamed(&items, "uri"), None).unwrap();
            prop_assert!(result::<ListResourcesResult>(resources).unwrap().resources.len() >= good);
            let templates = paged::<ResourceTemplate>("resourceTemplates", renamed(&items, "uriTemplate"), None).unwrap();
            prop_assert!(result::<ListResourceTemplatesResult>(templates).unwrap().resource_templates.len() >= good);
            let prompts = paged::<Prompt>("prompts", renamed(&items, "name"), None).unwrap();
            prop_assert!(result::<ListPromptsResult>(prompts).unwrap().prompts.len() >= good);
        }

        #[test]
        fn a_cursor_leads_into_the_list_or_is_refused(cursor in sa_hostile::text(&["0", "5", "1", "-", "+", "e"]), count in 0_usize..1_200) {
            let items: Vec<_> = (0..count).map(|number| json!({ "uri": number.to_string(), "name": "n" })).collect();
            let page = PaginatedRequestParams::default().with_cursor(Some(cursor.clone()));
            match paged::<Resource>("resources", items, Some(page)) {
                Ok(answer) => {
                    let listed = answer["resources"].as_array().unwrap().len();
                    prop_assert!(listed <= PAGE && (answer.get("nextCursor").is_none() || listed == PAGE));
                }
                Err(error) => prop_assert_eq!(error.code, ErrorCode::INVALID_PARAMS),
            }
        }

        #[test]
        fn every_answer_can_be_read(text in sa_hostile::nearly(json!({
            "resultType": "input_required", "requestState": "s", "contents": [{ "uri": "a:b", "text": "x" }],
            "inputRequests": { "a": { "method": "roots/list" } },
        }))) {
            if let Ok(answer) = serde_json::from_str::<Value>(&text) {
                let _ = input_required(&answer);
                if let Err(error) = result::<rmcp::model::ReadResourceResult>(answer) {
                    prop_assert!(error.message.len() < sa_hostile::SHORT);
                }
            }
        }
    }
}
