//! The stored form of tokens.

use std::sync::Arc;

use sa_core::store::{Expect, Records, StoreError, StoreErrorKind};
use sa_core::{Pattern, Principal, Role};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{ChannelGrant, Identity, is_console_session};

const BUCKET: &str = "tokens";

pub(super) type Hash = [u8; 32];

/// A stored token. Operators can see it, except for its hash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRecord {
    pub id: String,
    pub name: String,
    pub role: String,
    pub(super) hash: String,
    pub created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<i64>,
    /// Patterns of allowed tools. See [`Principal`] for a token with no patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of allowed models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The only node id that a node's token may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(flatten)]
    pub channels: ChannelGrant,
}

/// The prefix of models in older records, which stored them among the tools.
pub(crate) const MODEL_TOOL: &str = "models/";

impl TokenRecord {
    /// Moves models from the tools of an older record to the list of models.
    fn separate_models(&mut self) {
        let (models, tools) = std::mem::take(&mut self.tools)
            .into_iter()
            .partition::<Vec<_>, _>(|tool| tool.starts_with(MODEL_TOOL));
        self.tools = tools;
        self.models.extend(models.iter().map(|model| model[MODEL_TOOL.len()..].to_owned()));
    }

    /// Reports whether an operator can use the token now and later. Console sessions do not count
    /// because they expire.
    pub(super) fn lets_operators_in(&self, now_ms: i64) -> bool {
        self.role == Role::Operator.as_str()
            && !is_console_session(&self.id)
            && self.revoked_ms.is_none()
            && self.expires_ms.is_none_or(|at| at > now_ms)
    }
}

/// A token record with its derived values.
pub(super) struct Known {
    pub(super) record: TokenRecord,
    pub(super) hash: Hash,
    pub(super) identity: Identity,
    /// Whether the stored record is up to date.
    pub(super) written: bool,
}

/// Reads all tokens. Returns the errors of unreadable records separately.
pub(super) async fn all(records: &dyn Records) -> Result<(Vec<Known>, Vec<String>), StoreError> {
    let (mut known, mut unreadable) = (Vec::new(), Vec::new());
    for (id, record) in records.list(BUCKET).await? {
        match Known::read(&id, &record.value) {
            Ok(token) => known.push(token),
            Err(why) => {
                unreadable
                    .push(format!("the token {id} cannot be read and is not accepted: {why}"));
            }
        }
    }
    Ok((known, unreadable))
}

/// Writes a token and returns its new state.
pub(super) async fn put(
    records: &dyn Records,
    record: &TokenRecord,
    expect: Expect,
) -> Result<Known, StoreError> {
    let invalid = |why: String| StoreError {
        kind: StoreErrorKind::Invalid,
        message: format!("the token is invalid: {why}"),
    };
    let known = Known::new(record.clone()).map_err(invalid)?;
    let value = serde_json::to_vec(record).map_err(|error| invalid(error.to_string()))?;
    records.put(BUCKET, &record.id, value.into(), expect).await?;
    Ok(known)
}

pub(super) async fn delete(records: &dyn Records, id: &str) -> Result<(), StoreError> {
    records.delete(BUCKET, id).await.map(drop)
}

impl Known {
    fn read(id: &str, value: &[u8]) -> Result<Self, String> {
        let mut record: TokenRecord =
            serde_json::from_slice(value).map_err(|error| error.to_string())?;
        record.separate_models();
        if record.id != id {
            return Err(format!("it is the record of another token, {}", record.id));
        }
        Self::new(record)
    }

    fn new(record: TokenRecord) -> Result<Self, String> {
        let hash = decode(&record.hash).ok_or("its hash is invalid")?;
        let role = Role::parse(&record.role)
            .ok_or_else(|| format!("its role {} is unknown", record.role))?;
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let principal = Principal {
            tools: patterns(&record.tools),
            channels: patterns(&record.channels.channels),
            models: patterns(&record.models),
            ..Principal::new(record.id.as_str(), record.name.as_str(), role)
        };
        let identity = Identity {
            principal: Arc::new(principal),
            revoked: CancellationToken::new(),
            expires_ms: record.expires_ms,
            node_id: record.node_id.as_deref().map(Into::into),
            channels: Arc::new(record.channels.clone()),
        };
        Ok(Self { record, hash, identity, written: true })
    }
}

fn decode(hex: &str) -> Option<Hash> {
    blake3::Hash::from_hex(hex).ok().map(|hash| *hash.as_bytes())
}
