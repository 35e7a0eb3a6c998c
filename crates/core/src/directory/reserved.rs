//! Ids of providers that an operator installed and disabled.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Attach, AttachError, Directory, Registration};
use crate::call::{Call, Updates};
use crate::outcome::{CallError, Outcome};
use crate::principal::Scope;
use crate::provider::{Grant, Provider, ProviderId};
use crate::tool::Catalog;
use sa_text::json::RawJson;

/// A placeholder for a disabled provider. It has no tools, so it receives no calls.
struct Disabled;

impl Provider for Disabled {
    fn call(&self, _: Arc<Call>, _: Updates) -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Err(CallError::undelivered("the provider is disabled"))))
    }
}

impl Directory {
    /// Reserves the id of a disabled provider while the registration lives. Otherwise a node could
    /// take the id, and receive the calls for the installed provider.
    pub fn reserve(
        self: &Arc<Self>,
        id: ProviderId,
        grant: Grant,
    ) -> Result<Registration, AttachError> {
        let registration = self.attach(Attach {
            id,
            scope: Scope::Everyone,
            grant,
            provider: Arc::new(Disabled),
            catalog: Catalog::default(),
            max_running: 0,
            about: RawJson::empty_object(),
            may_take_over: true,
        })?;
        registration.set_offline();
        Ok(registration)
    }
}
