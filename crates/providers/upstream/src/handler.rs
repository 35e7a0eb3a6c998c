//! Handles the requests and notifications that a server sends to its client.

#![expect(
    deprecated,
    reason = "sampling and roots are deprecated in MCP, but servers still use them"
)]

use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationCapability, ErrorData, FormElicitationCapability,
    Implementation, ListRootsResult, ProtocolVersion, ResourceUpdatedNotificationParam,
    ServerNotification, ServerPeerInfo, SubscriptionFilter, UrlElicitationCapability,
};
use rmcp::service::{
    InboundStreamOrigin, NotificationContext, Peer, RequestContext, RoleClient, ServiceError,
};
use sa_core::{CallErrorKind, RawJson};
use sa_text::json::why;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{ListChanges, is_unsent};
use crate::subscriptions::Subscriptions;
use crate::table::{Requester, Table};

/// How long to wait before a closed change stream is opened again: at first, and after repeated
/// failures.
const MIN_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// MCP Apps: pages that a server provides for the results of its tools, and their MIME type.
const UI: &str = "io.modelcontextprotocol/ui";
const UI_PAGE: &str = "text/html;profile=mcp-app";

pub(crate) struct Handler {
    pub(crate) table: Arc<Table>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) changes: watch::Sender<ListChanges>,
}

impl Handler {
    fn requester(&self, context: &RequestContext<RoleClient>) -> Result<Requester, ErrorData> {
        let origin = context.extensions.get::<InboundStreamOrigin>();
        self.table.requester_of(origin).map_err(|why| ErrorData::invalid_request(why, None))
    }

    fn documents_changed(&self) {
        self.changes.send_modify(|changes| changes.documents += 1);
    }
}

/// Forwards a question to the caller of the tool. Returns early if the server cancels it.
async fn ask<T: DeserializeOwned>(
    requester: Requester,
    what: &str,
    params: &impl Serialize,
    context: &RequestContext<RoleClient>,
) -> Result<T, ErrorData> {
    let params = serde_json::to_value(params)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = tokio::select! {
        answer = requester.ask(what, RawJson::of(&params)) => answer,
        () = context.ct.cancelled() => return Err(ErrorData::internal_error("the server cancelled the request", None)),
    };
    let answer = answer.map_err(|error| match error.kind {
        CallErrorKind::NotAllowed => ErrorData::invalid_request(error.message, None),
        _ => ErrorData::internal_error(error.message, None),
    })?;
    serde_json::from_str(answer.as_str()).map_err(|error| {
        ErrorData::internal_error(
            format!("the client's answer to {what} is invalid: {}", why(&error)),
            None,
        )
    })
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities =
            ClientCapabilities::builder().enable_roots().enable_sampling().build();
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default()),
        );
        // The console shows these pages. Servers hide them, and the tools that belong to them,
        // from clients without this capability.
        let pages = json!({ "mimeTypes": [UI_PAGE] }).as_object().cloned().unwrap_or_default();
        capabilities.extensions = Some([(UI.to_owned(), pages)].into());
        // The protocol version of an `initialize` request. rmcp's default is a version without
        // `initialize`: a server that echoes it would be treated as one of the newer era.
        // Discovery does not use this value.
        ClientConfig::new(
            capabilities,
            Implementation::new("switchboard", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        ask(self.requester(&context)?, "sampling/createMessage", &params, &context).await
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        ask(self.requester(&context)?, "elicitation/create", &params, &context).await
    }

    async fn list_roots(
        &self,
        context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        // Many servers ask for the roots as soon as they are connected. The gateway itself has
        // none.
        let Ok(requester) = self.requester(&context) else { return Ok(ListRootsResult::default()) };
        ask(requester, "roots/list", &json!({}), &context).await
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.subscriptions.changed(&params.uri);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.send_modify(|changes| changes.tools += 1);
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.documents_changed();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.documents_changed();
    }
}

/// Follows the change stream of a server that has one, until the connection is closed.
pub(crate) async fn listen(
    peer: Peer<RoleClient>,
    info: Arc<ServerPeerInfo>,
    changes: watch::Sender<ListChanges>,
    closed: CancellationToken,
    suspect: CancellationToken,
) {
    let offers = &info.capabilities;
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed =
        offers.tools.as_ref().and_then(|tools| tools.list_changed).filter(|yes| *yes);
    filter.prompts_list_changed =
        offers.prompts.as_ref().and_then(|prompts| prompts.list_changed).filter(|yes| *yes);
    filter.resources_list_changed =
        offers.resources.as_ref().and_then(|resources| resources.list_changed).filter(|yes| *yes);
    if filter == SubscriptionFilter::new() {
        return;
    }
    let follow = async {
        let mut wait = MIN_WAIT;
        loop {
            let since = Instant::now();
            match peer.listen(filter.clone()).await {
                Ok(mut stream) => {
                    // Something may have changed while no stream was open. This triggers a check,
                    // though no change was reported.
                    changes.send_modify(|_| {});
                    while let Ok(Some(change)) = stream.next().await {
                        changes.send_modify(|changes| match change {
                            ServerNotification::ToolListChangedNotification(_) => {
                                changes.tools += 1;
                            }
                            _ => changes.documents += 1,
                        });
                    }
                }
                Err(ServiceError::TransportSend(error)) if is_unsent(&*error.error) => {
                    return suspect.cancel();
                }
                Err(_) => {}
            }
            wait = if since.elapsed() > MAX_WAIT { MIN_WAIT } else { (wait * 2).min(MAX_WAIT) };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = closed.cancelled() => {}
    }
}
