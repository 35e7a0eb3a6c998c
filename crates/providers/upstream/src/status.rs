//! The upstream servers in the gateway's status.

use serde::Serialize;

use crate::{State, Upstreams, View};

impl Upstreams {
    pub fn status(&self) -> UpstreamStatus {
        UpstreamStatus::of(self.list())
    }
}

/// The state of the upstream MCP servers.
#[derive(Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct UpstreamStatus {
    /// The number of servers that are ready, or that the first call starts.
    up: usize,
    starting: usize,
    /// The number of servers that the configuration disables.
    disabled: usize,
    /// The servers that do not respond, by name.
    down: Vec<DownUpstream>,
}

#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct DownUpstream {
    name: String,
    /// `offline`, `failed` or `login_needed`.
    #[schema(value_type = String)]
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl UpstreamStatus {
    fn of(servers: impl IntoIterator<Item = View>) -> Self {
        use State as S;
        let mut status = Self::default();
        for View { name, health, .. } in servers {
            match health.state {
                S::Ready | S::Idle => status.up += 1,
                S::Starting => status.starting += 1,
                S::Disabled => status.disabled += 1,
                state @ (S::Offline | S::Failed | S::LoginNeeded) => {
                    status.down.push(DownUpstream { name, state, why: health.last_error });
                }
            }
        }
        status
    }
}
