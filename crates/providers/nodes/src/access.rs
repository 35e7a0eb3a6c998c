//! The tokens with which nodes may connect, and the grants that they give.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use sa_core::{Directory, Grant, Role};
use sa_http::StoredTokens;

use crate::NodeTokens;

/// All tokens of nodes: those of the environment and the stored ones.
pub struct Access {
    pub(crate) configured: NodeTokens,
    pub(crate) stored: Arc<dyn StoredTokens>,
}

impl Access {
    pub fn new(configured: NodeTokens, stored: Arc<dyn StoredTokens>) -> Self {
        Self { configured, stored }
    }

    /// Whether there is no node token. Nodes on this machine may then connect without one, as the
    /// start-up warning reports.
    pub fn admits_anyone(&self) -> bool {
        self.configured.is_empty() && !self.stored.any(Role::Node)
    }

    /// Whether there are stored node tokens only, so that no node can connect once they are over.
    pub fn needs_stored_token(&self) -> bool {
        self.configured.is_empty() && self.stored.any(Role::Node)
    }

    /// Returns the grants with which nodes can connect. While the clock is not trusted, these
    /// include the grants of expired tokens.
    pub fn valid_grants(&self) -> HashSet<Grant> {
        let stored = self.stored.list(Role::Node).into_iter().filter(|token| !token.is_over);
        let mut valid: HashSet<Grant> =
            stored.map(|token| Grant::stored_token(&token.id)).collect();
        valid.extend(self.configured.bound.iter().map(|(id, _)| bound_grant(id)));
        valid.extend(self.configured.shared.iter().map(|_| shared_grant()));
        valid.extend(self.admits_anyone().then(Grant::none));
        valid
    }

    /// Forgets the disconnected nodes with invalid tokens.
    ///
    /// They cannot reconnect with these tokens, so their names become free. Connected nodes are
    /// disconnected when their tokens expire.
    pub fn release_names(&self, directory: &Directory) {
        let over = self.stored.list(Role::Node).into_iter().filter(|token| token.is_over);
        directory.forget_grants(&over.map(|token| Grant::stored_token(&token.id)).collect());
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("configured", &self.configured).finish_non_exhaustive()
    }
}

/// The grant of nodes that use `SA_NODE_TOKEN`.
pub(crate) fn shared_grant() -> Grant {
    Grant::token("SA_NODE_TOKEN")
}

/// The grant of the node that uses its token of `SA_NODE_TOKENS`.
pub(crate) fn bound_grant(id: &str) -> Grant {
    Grant::token(&format!("SA_NODE_TOKENS:{id}"))
}
