//! The notices that a principal receives.

use std::borrow::Cow;
use std::sync::Arc;

use sa_core::visible_tools::{VisibleNarrowTools, VisibleTools};
use sa_core::{Notice, NoticeBody, Scope, SessionNoticeKind, View};
use sa_http::{Http, Identity};

/// The lists of a principal at the last notice: the tools for everyone, and those of each channel
/// and session.
#[derive(Debug)]
pub(super) struct Lists {
    shared: VisibleTools,
    narrow: VisibleNarrowTools,
}

impl Lists {
    pub(super) fn new(http: &Http, identity: &Identity) -> Self {
        let principal = &identity.principal;
        Self {
            shared: VisibleTools::new(&http.router, View::of(Arc::clone(principal))),
            narrow: VisibleNarrowTools::new(&http.router, Arc::clone(principal), |scope| {
                may_see(http, identity, scope)
            }),
        }
    }

    /// Returns whether a notice is for this principal. A change of tools is only for principals
    /// whose list has changed.
    pub(super) fn has_news(&self, http: &Http, identity: &Identity, notice: &Notice) -> bool {
        if notice.to.as_ref().is_some_and(|to| *to != identity.principal.id) {
            return false;
        }
        match &notice.body {
            NoticeBody::ToolsChanged { scope: Some(scope), .. } if *scope != Scope::Everyone => {
                self.narrow.changed(&http.router, scope, may_see(http, identity, scope))
            }
            NoticeBody::ToolsChanged { scope, .. } => {
                self.shared.changed(&http.router, scope.as_ref())
            }
            NoticeBody::DocumentsChanged { provider } => {
                self.shared.documents_changed(provider.as_ref())
            }
            NoticeBody::Session { .. } => true,
        }
    }
}

/// Returns whether a principal may see the tools of a narrow scope.
fn may_see(http: &Http, identity: &Identity, scope: &Scope) -> bool {
    match scope {
        Scope::Session(id) => http.view(identity, Some(id)).scopes.contains(scope),
        Scope::Channel(name) => identity.rights(name).call,
        // No list contains these tools, because they belong to a single request.
        Scope::User(_) | Scope::Everyone => false,
    }
}

/// Returns the event name of a notice, and its data.
pub(super) fn describe(notice: &NoticeBody) -> (&'static str, Cow<'_, str>) {
    match notice {
        NoticeBody::ToolsChanged { revision, .. } => {
            ("tools_changed", format!("{{\"revision\":{revision}}}").into())
        }
        NoticeBody::DocumentsChanged { .. } => ("documents_changed", "{}".into()),
        NoticeBody::Session { kind: SessionNoticeKind::CallerToolRequest, data, .. } => {
            ("caller_tool_request", data.as_str().into())
        }
        NoticeBody::Session { kind: SessionNoticeKind::Event, data, .. } => {
            ("session", data.as_str().into())
        }
    }
}
