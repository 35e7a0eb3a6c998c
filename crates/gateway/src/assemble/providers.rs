//! What the rest of the gateway asks of its providers.

use std::sync::Arc;

use sa_http::doctor::Doctor;
use sa_limits::budget::SharedBudget;
use serde::Serialize;

use super::{Gateway, Settings};
use crate::budgets::Budgets;
use crate::tokens::TokenRecord;

/// The providers in the gateway's status.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ProviderStatus {
    nodes_online: usize,
    nodes_known: usize,
    upstream: sa_upstream::UpstreamStatus,
    /// Absent if sessions are disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<sa_relay::SessionStatus>,
}

impl Gateway {
    pub(crate) fn provider_status(&self) -> ProviderStatus {
        ProviderStatus {
            nodes_online: self.nodes_online(),
            nodes_known: self.router.directory().members(sa_nodes::KIND).len(),
            upstream: self.upstreams.status(),
            sessions: self.sessions.as_ref().map(|sessions| sessions.status()),
        }
    }

    pub(crate) fn nodes_online(&self) -> usize {
        self.router.directory().online(sa_nodes::KIND)
    }

    /// Returns whether nodes can connect without a token.
    pub(crate) fn admits_any_node(&self) -> bool {
        self.node_access.admits_anyone()
    }

    /// Returns whether nodes can only connect with a stored token.
    pub(crate) fn needs_node_token(&self) -> bool {
        self.node_access.needs_stored_token()
    }

    /// Returns all budgets, for the status and for metrics.
    pub fn all_budgets(&self) -> Vec<&Arc<SharedBudget>> {
        let Budgets { requests, answers, provider_answers, connections } = &self.budgets;
        let mut all = vec![connections.budget(), requests, answers, provider_answers];
        all.extend(self.router.budgets());
        all.extend(self.nodes.budgets());
        all.extend(self.sessions.iter().flat_map(|sessions| sessions.budgets()));
        all.extend(self.channels.budgets());
        all.extend(self.mcp.mcp.budgets());
        all.push(self.ledger.budget());
        all.sort_by_key(|budget| budget.limit().name);
        all
    }

    /// Ends what belongs to a token that is not valid any more.
    pub(crate) async fn end_owned(&self, token: &str, why: &'static str) {
        if let Some(sessions) = &self.sessions {
            sessions.end_owned(token, why).await;
        }
    }

    /// Ends the sessions of expired tokens.
    pub(crate) async fn end_expired(&self) {
        let expired =
            |token: &TokenRecord| token.revoked_ms.is_none() && self.tokens.is_over(token);
        for token in self.tokens.list().into_iter().filter(expired) {
            self.end_owned(&token.id, "the caller's token has expired").await;
        }
    }

    /// Deletes old records of providers.
    pub(crate) async fn trim_providers(&self) {
        self.channels.keep_house().await;
    }
}

/// Checks the id of a node that a token is bound to.
pub(crate) fn check_node_id(id: &str) -> Result<(), String> {
    sa_nodes::check_id(id)
}

impl Settings {
    /// Returns the checks of `switchboard doctor`, in the order of the report.
    pub fn doctors(&self) -> [&dyn Doctor; 3] {
        [&self.upstream, &self.plugins, &self.nodes]
    }

    /// Returns the number of days that messages between participants are kept.
    pub(crate) fn message_days(&self) -> u64 {
        self.channels.keep_days
    }
}
