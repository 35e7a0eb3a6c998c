//! Who presented a token, and what that lets them see and do in channels.

use std::sync::Arc;
use std::time::Duration;

use sa_channels::Rights;
use sa_core::{Principal, Role, Scope, View, clock};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Who presented a token.
#[derive(Debug, Clone)]
pub struct Identity {
    pub principal: Arc<Principal>,
    /// Fires when the token is revoked.
    pub revoked: CancellationToken,
    pub expires_ms: Option<i64>,
    pub node_id: Option<Arc<str>>,
    pub channels: Arc<ChannelGrant>,
}

impl Identity {
    /// What this token may do in a channel.
    pub fn rights(&self, channel: &str) -> Rights {
        let operator = self.principal.role == Role::Operator;
        let enters = self.principal.may_enter(channel);
        let may = |right| enters && (operator || self.channels.allows(right));
        Rights { read: may("read"), publish: may("publish"), call: may("call"), admin: may("admin") }
    }

    /// What a request sees: the channels that the token is for by name.
    pub fn view(&self) -> View {
        let scopes = self.channels.named().filter(|name| self.rights(name).call);
        View {
            principal: Arc::clone(&self.principal),
            scopes: scopes.map(|name| Scope::Channel(name.into())).collect(),
        }
    }

    /// The same with one more channel in view; `None` when the token may not call there.
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

    /// Resolves when the token does not count any more: it was revoked, or its time is over. What was opened with it
    /// ends then, too.
    pub async fn over(&self) {
        let expiry = async {
            let Some(at) = self.expires_ms else { return std::future::pending().await };
            // The clock may be set meanwhile, so it is looked at again.
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

/// What a token may do in channels. Whether it may use one at all is for [`Principal::may_enter`] to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelGrant {
    /// The channels it may use, `*` standing for any characters. Empty means all for a token that names no tools and models
    /// either, and none for any other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// `read`, `publish`, `call`, `admin`; empty means all but the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channel_rights: Vec<String>,
}

impl ChannelGrant {
    /// The words for what can be done in a channel.
    pub const RIGHTS: [&str; 4] = ["read", "publish", "call", "admin"];

    /// The channels that it names one by one, and so brings into view by itself.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(String::as_str).filter(|name| !name.contains('*'))
    }

    fn allows(&self, right: &str) -> bool {
        (self.channel_rights.is_empty() && right != "admin")
            || self.channel_rights.iter().any(|allowed| allowed == right)
    }
}
