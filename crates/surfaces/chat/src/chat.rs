//! The models of a gateway, and the requests for their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use sa_core::{Principal, Router};
use sa_limits::budget::SharedBudget;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::calls::Caller;
use crate::error::ChatError;
use crate::memory::Memory;
use crate::request::ChatRequest;
use crate::responses::translate_events;
use crate::run::Run;
use crate::server;
use crate::spec::Spec;

/// All configured models.
#[derive(Debug)]
pub struct Chat {
    pub(crate) router: Arc<Router>,
    pub(crate) models: BTreeMap<String, Spec>,
    pub(crate) http: reqwest::Client,
    pub(crate) memory: Memory,
    /// The budget for answers of the models.
    pub(crate) answers: Arc<SharedBudget>,
}

/// An event of a stream. [`Event::Started`] or [`Event::Failed`] comes first.
#[derive(Debug)]
pub enum Event {
    /// The model's server has begun to answer. `left_out` tools were left out, because the server
    /// accepts no more.
    Started {
        left_out: usize,
    },
    /// The data of one event.
    Data(String),
    /// An event with a name, as in the Responses API.
    Named {
        name: &'static str,
        data: String,
    },
    Failed(ChatError),
    Done,
}

impl Chat {
    pub fn new(
        router: Arc<Router>,
        models: BTreeMap<String, Spec>,
        answers: Arc<SharedBudget>,
    ) -> Result<Self, String> {
        Ok(Self { router, models, http: server::client()?, memory: Memory::default(), answers })
    }

    /// Returns the list of models that the principal may use, as in `GET /v1/models`.
    pub fn list(&self, principal: &Principal) -> String {
        let models: Vec<_> = self
            .models
            .keys()
            .filter(|name| principal.may_ask(name))
            .map(|name| about(name))
            .collect();
        json!({ "object": "list", "data": models }).to_string()
    }

    /// Returns one model, as in `GET /v1/models/NAME`.
    pub fn show(&self, name: &str, principal: &Principal) -> Result<String, ChatError> {
        self.model(name, principal).map(|(name, _)| about(name).to_string())
    }

    /// Returns a model that the principal may use. A model that it may not use is reported as
    /// missing.
    pub(crate) fn model(
        &self,
        name: &str,
        principal: &Principal,
    ) -> Result<(&str, &Spec), ChatError> {
        let mut models = self
            .models
            .iter()
            .filter(|(name, _)| principal.may_ask(name))
            .map(|(name, spec)| (&**name, spec));
        if let Some(found) = models.clone().find(|(known, _)| *known == name) {
            return Ok(found);
        }
        let mut others = || models.by_ref().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        let name = crate::error::quoted(name, &[]);
        let message = match others() {
            others if !others.is_empty() => format!("unknown model \"{name}\"; available models: {others}"),
            _ if principal.is_limited() => format!(
                "this token may not use the model \"{name}\"; an operator can create a token for it with `switchboard token create NAME --model MODEL`"
            ),
            _ => {
                "no model is configured; add a [models.NAME] with a base_url to the gateway's configuration".to_owned()
            }
        };
        let error = ChatError::new(404, "invalid_request_error", "model_not_found", message);
        Err(ChatError { param: Some("model".into()), ..error })
    }

    /// Returns a whole answer, and the number of tools that were left out for it. Dropping the
    /// future cancels everything.
    pub async fn complete(
        &self,
        chat_request: ChatRequest,
        caller: &Caller,
    ) -> Result<(String, usize), ChatError> {
        let responses = chat_request.responses.clone();
        // The part of the budget is held until the answer is written.
        let (answer, left_out, _answers) =
            Run::prepare(self, chat_request, caller).await?.whole().await?;
        let answer = match responses {
            None => Value::Object(answer),
            Some(settings) => settings.response(answer),
        };
        Ok((answer.to_string(), left_out))
    }

    /// Sends an answer in pieces. Ends early if the reader disconnects; dropping the future cancels
    /// everything.
    pub async fn stream(
        &self,
        chat_request: ChatRequest,
        caller: &Caller,
        events: &mpsc::Sender<Event>,
    ) {
        let Some(settings) = chat_request.responses.clone() else {
            return self.stream_chunks(chat_request, caller, events).await;
        };
        let (sender, chunks) = mpsc::channel(1);
        let run = async move { self.stream_chunks(chat_request, caller, &sender).await };
        tokio::join!(run, translate_events(&settings, chunks, events));
    }

    /// Sends the pieces as chunks of a chat completion.
    async fn stream_chunks(
        &self,
        chat_request: ChatRequest,
        caller: &Caller,
        events: &mpsc::Sender<Event>,
    ) {
        let run = match Run::prepare(self, chat_request, caller).await {
            Ok(run) => run,
            Err(error) => return drop(events.send(Event::Failed(error)).await),
        };
        let last = match run.stream(events).await {
            Ok(()) => Event::Done,
            Err(error) => Event::Failed(error),
        };
        let _ = events.send(last).await;
    }
}

fn about(name: &str) -> serde_json::Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "switchboard" })
}
