//! The identity behind a token, and its rights in channels.

use std::sync::Arc;
use std::time::Duration;

use sa_core::{Principal, Role, Scope, View, clock};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// The rights of a token in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub publish: bool,
    pub call: bool,
    /// Whether it may delete the channel.
    pub admin: bool,
}

/// The identity of a token's holder.
#[derive(Debug, Clone)]
pub struct Identity {
    pub principal: Arc<Principal>,
    /// Cancelled when the token is revoked.
    pub revoked: CancellationToken,
    pub expires_ms: Option<i64>,
    pub node_id: Option<Arc<str>>,
    pub channels: Arc<ChannelGrant>,
}

impl Identity {
    /// Returns the rights of the token in a channel.
    pub fn rights(&self, channel: &str) -> Rights {
        let operator = self.principal.role == Role::Operator;
        let enters = self.principal.may_enter(channel);
        let may = |right| enters && (operator || self.channels.allows(right));
        Rights {
            read: may("read"),
            publish: may("publish"),
            call: may("call"),
            admin: may("admin"),
        }
    }

    /// Returns the view of a request: the channels that the token names.
    pub fn view(&self) -> View {
        let scopes = self.channels.named().filter(|name| self.rights(name).call);
        View {
            principal: Arc::clone(&self.principal),
            scopes: scopes.map(|name| Scope::Channel(name.into())).collect(),
        }
    }

    /// Returns the view with an additional channel. Returns `None` if the token may not call there.
    pub fn view_in(&self, channel: Option<&str>) -> Option<View> {
        let mut view = self.view();
        if let Some(channel) = channel {
            if !self.rights(channel).call {
                return None;
            }
            let scope = Scope::Channel(channel.into());
            if !view.scopes.contains(&scope) {
                view.scopes.push(scope);
            }
        }
        Some(view)
    }

    /// Resolves when the token is revoked or expires. Connections opened with the token then end,
    /// too.
    pub async fn over(&self) {
        let expiry = async {
            let Some(at) = self.expires_ms else { return std::future::pending().await };
            // The system clock may change while waiting, so the remaining time is checked again.
            while let left @ 1.. = at - clock::now_ms() {
                tokio::time::sleep(Duration::from_millis(left.min(60_000).cast_unsigned())).await;
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = expiry => {}
        }
    }
}

/// The rights of a token in channels. [`Principal::may_enter`] decides which channels it may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelGrant {
    /// Patterns of allowed channels, where `*` matches any characters. An empty list allows all
    /// channels if the token names no tools or models, and otherwise none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// Allowed rights: `read`, `publish`, `call`, `admin`. An empty list allows all rights except
    /// `admin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channel_rights: Vec<String>,
}

impl ChannelGrant {
    /// The names of all channel rights.
    pub const RIGHTS: [&str; 4] = ["read", "publish", "call", "admin"];

    /// Returns the channels that are named without a pattern. They are part of every view of the
    /// token.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(String::as_str).filter(|name| !name.contains('*'))
    }

    fn allows(&self, right: &str) -> bool {
        (self.channel_rights.is_empty() && right != "admin")
            || self.channel_rights.iter().any(|allowed| allowed == right)
    }
}
