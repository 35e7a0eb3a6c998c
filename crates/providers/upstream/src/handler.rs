//! What a server wants from its client: answers to questions, and an ear for changes.

#![expect(deprecated, reason = "sampling and roots have no future, but servers that use them")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ListRootsResult,
    ProtocolVersion, ResourceUpdatedNotificationParam, ServerNotification, ServerPeerInfo, SubscriptionFilter,
    UrlElicitationCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, Peer, RequestContext, RoleClient, ServiceError};
use sa_core::json::why;
use sa_core::{CallErrorKind, RawJson};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{News, is_unsent};
use crate::table::{Asker, Table};
use crate::watched::Watched;

/// How long after a stream of changes ended it is asked for again: at first, and when it ends again and again.
const SOON: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_secs(5);

/// MCP Apps: pages that a server brings along for the results of its tools, and what they are.
const UI: &str = "io.modelcontextprotocol/ui";
const UI_PAGE: &str = "text/html;profile=mcp-app";

pub(crate) struct Handler {
    pub(crate) table: Arc<Table>,
    pub(crate) watched: Arc<Watched>,
    pub(crate) news: watch::Sender<News>,
}

impl Handler {
    fn asker(&self, context: &RequestContext<RoleClient>) -> Result<Asker, ErrorData> {
        let origin = context.extensions.get::<InboundStreamOrigin>();
        self.table.asked_by(origin).map_err(|why| ErrorData::invalid_request(why, None))
    }

    fn documents_changed(&self) {
        self.news.send_modify(|news| news.documents += 1);
    }
}

/// Puts a question to whoever made the call. Ends when the server takes it back.
async fn ask<T: DeserializeOwned>(
    asker: Asker,
    what: &str,
    params: &impl Serialize,
    context: &RequestContext<RoleClient>,
) -> Result<T, ErrorData> {
    let params = serde_json::to_value(params).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = tokio::select! {
        answer = asker.ask(what, RawJson::of(&params)) => answer,
        () = context.ct.cancelled() => return Err(ErrorData::internal_error("taken back", None)),
    };
    let answer = answer.map_err(|error| match error.kind {
        CallErrorKind::NotAllowed => ErrorData::invalid_request(error.message, None),
        _ => ErrorData::internal_error(error.message, None),
    })?;
    serde_json::from_str(answer.as_str()).map_err(|error| {
        ErrorData::internal_error(format!("the client's answer is none to {what}: {}", why(&error)), None)
    })
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::builder().enable_roots().enable_sampling().build();
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default()),
        );
        // The console shows them. Servers hide their pages, and the tools that go with them, from whoever does not say so.
        let pages = json!({ "mimeTypes": [UI_PAGE] }).as_object().cloned().unwrap_or_default();
        capabilities.extensions = Some([(UI.to_owned(), pages)].into());
        // The revision of an `initialize` request. rmcp's default is a revision that has no `initialize`: a server that
        // repeats it would be expected to speak the newer era from then on. Discovery does not use this value.
        ClientConfig::new(capabilities, Implementation::new("switchboard", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        ask(self.asker(&context)?, "sampling/createMessage", &params, &context).await
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        ask(self.asker(&context)?, "elicitation/create", &params, &context).await
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        // Many servers ask for these as soon as they are connected. The gateway itself has none.
        let Ok(asker) = self.asker(&context) else { return Ok(ListRootsResult::default()) };
        ask(asker, "roots/list", &json!({}), &context).await
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.watched.changed(&params.uri);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.news.send_modify(|news| news.tools += 1);
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.documents_changed();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.documents_changed();
    }
}

/// Follows the changes of a server that sends them on a stream of their own, for as long as it is connected.
pub(crate) async fn listen(
    peer: Peer<RoleClient>,
    info: Arc<ServerPeerInfo>,
    news: watch::Sender<News>,
    closed: CancellationToken,
    suspect: CancellationToken,
) {
    let offers = &info.capabilities;
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = offers.tools.as_ref().and_then(|tools| tools.list_changed).filter(|yes| *yes);
    filter.prompts_list_changed = offers.prompts.as_ref().and_then(|prompts| prompts.list_changed).filter(|yes| *yes);
    filter.resources_list_changed =
        offers.resources.as_ref().and_then(|resources| resources.list_changed).filter(|yes| *yes);
    if filter == SubscriptionFilter::new() {
        return;
    }
    let follow = async {
        let mut wait = SOON;
        loop {
            let since = Instant::now();
            match peer.listen(filter.clone()).await {
                Ok(mut changes) => {
                    // Something may have changed while nobody listened: it is looked at, though nobody says that it has.
                    news.send_modify(|_| {});
                    while let Ok(Some(change)) = changes.next().await {
                        news.send_modify(|news| match change {
                            ServerNotification::ToolListChangedNotification(_) => news.tools += 1,
                            _ => news.documents += 1,
                        });
                    }
                }
                Err(ServiceError::TransportSend(error)) if is_unsent(&*error.error) => return suspect.cancel(),
                Err(_) => {}
            }
            wait = if since.elapsed() > AGAIN { SOON } else { (wait * 2).min(AGAIN) };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = closed.cancelled() => {}
    }
}
