//! Fetches manifests and documents from their sources, and checks them for changes.

use std::sync::Arc;
use std::time::Duration;

use sa_egress::header::{
    ACCEPT, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use sa_egress::{Allowed, EgressError, EgressErrorKind, Request};
use sa_limits::budget::Share;
use sa_limits::received::Held;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use crate::Plugins;
use crate::registry::ChangeError;

const TIMEOUT: Duration = Duration::from_secs(15);

/// The HTTP validators by which a server detects that a document is unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Validators {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
}

pub(crate) struct Fetched {
    pub(crate) text: String,
    pub(crate) validators: Validators,
    /// The part of the budget for answers that the text holds.
    _held: Held,
}

impl Fetched {
    /// Returns a text that was not fetched.
    pub(crate) fn of(text: String) -> Self {
        Self { text, validators: Validators::default(), _held: Held::default() }
    }
}

/// Why a document could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("its server returned {0}")]
    Status(u16),
    #[error("it is not text")]
    NotText,
}

impl FetchError {
    /// Returns whether it is at a forbidden address.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Egress(error) if error.kind == EgressErrorKind::Forbidden)
    }
}

impl Plugins {
    /// Fetches a document. Returns `None` if it has not changed since it had these validators.
    pub(crate) async fn fetch(
        &self,
        url: &Url,
        allowed: &Allowed,
        validators: &Validators,
        max_bytes: usize,
    ) -> Result<Option<Fetched>, FetchError> {
        self.fetch_for(None, url, allowed, validators, max_bytes).await
    }

    /// Does the same for a caller, whose large documents take from this share.
    pub(crate) async fn fetch_for(
        &self,
        answers: Option<Share>,
        url: &Url,
        allowed: &Allowed,
        validators: &Validators,
        max_bytes: usize,
    ) -> Result<Option<Fetched>, FetchError> {
        let mut request = Request::get(url.clone(), TIMEOUT, max_bytes);
        (request.allowed, request.answers) = (allowed.clone(), answers);
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        for (name, value) in
            [(IF_NONE_MATCH, &validators.etag), (IF_MODIFIED_SINCE, &validators.last_modified)]
        {
            if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok())
            {
                request.headers.insert(name, value);
            }
        }
        let response = self.shared.egress.send(request).await?;
        if response.status.as_u16() == 304 && *validators != Validators::default() {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(FetchError::Status(response.status.as_u16()));
        }
        let header = |name| response.header(name).map(str::to_owned);
        let validators = Validators { etag: header(&ETAG), last_modified: header(&LAST_MODIFIED) };
        let text = String::from_utf8(response.body.to_vec()).map_err(|_| FetchError::NotText)?;
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        Ok(Some(Fetched { text, validators, _held: response.held }))
    }
}

/// Fetches every source again at an interval, one after another, until the gateway shuts down.
pub(crate) async fn keep_fresh(plugins: Arc<Plugins>, closing: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(plugins.options.refresh) => {}
            () = closing.cancelled() => return,
        }
        let known: Vec<String> = plugins.entries().keys().cloned().collect();
        for identifier in known {
            let refreshed = tokio::select! {
                refreshed = plugins.refresh(&identifier) => refreshed,
                () = closing.cancelled() => return,
            };
            match refreshed {
                Ok(_) | Err(ChangeError::NoSource(_) | ChangeError::Unknown(_)) => {}
                Err(error) => {
                    warn!(plugin = identifier, %error, "cannot check the source of a plugin");
                }
            }
        }
    }
}
