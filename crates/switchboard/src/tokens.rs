//! Tokens: 256 random bits, shown once, kept as hashes, bound to a principal, revocable at once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sa_channels::Rights;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Pattern, Principal, Role, Scope, View, clock};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

const BUCKET: &str = "tokens";

/// Makes our tokens recognisable to secret scanners, and to people.
const PREFIX: &str = "sb_";

/// What the operator's own tokens are called, in its file and in the console.
const OPERATORS: [&str; 2] = ["operator", "console"];

/// How the ids of the console's sessions begin.
const CONSOLE: &str = "console_";

/// All tokens of this gateway. The store has them; look-ups go to the copy in memory.
pub struct Tokens {
    records: Arc<dyn Records>,
    known: RwLock<HashMap<Hash, Arc<Known>>>,
    /// Held while one is made, from the look at the names that are taken to the moment when this one is.
    making: tokio::sync::Mutex<()>,
}

type Hash = [u8; 32];

/// A token as it is stored, and as operators see it but for its hash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRecord {
    pub id: String,
    pub name: String,
    pub role: String,
    hash: String,
    pub created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<i64>,
    /// The tools it may use; empty means all, but for a participant none of the gateway's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The only node id it may use, for a node's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(flatten)]
    pub channels: ChannelGrant,
}

/// What a token may do in channels. It says nothing more for who may not use channels by their role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelGrant {
    /// The channels it may use, `*` standing for any characters; empty means all.
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

    fn covers(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.iter().any(|pattern| Pattern::new(pattern).matches(channel))
    }

    fn allows(&self, right: &str) -> bool {
        (self.channel_rights.is_empty() && right != "admin")
            || self.channel_rights.iter().any(|allowed| allowed == right)
    }
}

struct Known {
    record: TokenRecord,
    hash: Hash,
    identity: Identity,
    /// Whether the record is on disk as it is here.
    written: bool,
}

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
        let role = self.principal.role;
        let all = role == Role::Operator || (role.may_call_tools() && self.channels.covers(channel));
        let may = |right| all && (role == Role::Operator || self.channels.allows(right));
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

/// What a new token is to be.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    pub tools: Vec<String>,
    pub node_id: Option<String>,
    pub expires_ms: Option<i64>,
    pub channels: ChannelGrant,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Somebody else speaks under this name.
    #[error("{0}")]
    Taken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a token was not revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRevoked {
    /// No valid token is called so, or more than one is.
    Unclear,
    /// No other one would let an operator in.
    LastOperator,
}

impl TokenRecord {
    /// Whether an operator can come in with it, today and later: a session of the console ends by itself.
    fn lets_operators_in(&self, now_ms: i64) -> bool {
        self.role == Role::Operator.as_str()
            && !is_console_session(&self.id)
            && self.revoked_ms.is_none()
            && self.expires_ms.is_none_or(|at| at > now_ms)
    }
}

/// The longest time that a token can be made for, in seconds: a hundred years. A calendar that is asked for more has an end.
pub const MAX_LIFE_S: u64 = 36_500 * 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Missing,
    Unknown,
    Revoked,
    Expired,
}

impl Refused {
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => "this needs a token",
            Self::Unknown => "the token is not known here",
            Self::Revoked => "the token was revoked",
            Self::Expired => "the token has expired",
        }
    }
}

impl Tokens {
    pub async fn load(records: Arc<dyn Records>) -> Result<Self, StoreError> {
        let mut known = HashMap::new();
        for (_, record) in records.list(BUCKET).await? {
            if let Ok(record) = serde_json::from_slice::<TokenRecord>(&record.value)
                && let Some(entry) = Known::new(record)
            {
                known.insert(entry.0, Arc::new(entry.1));
            }
        }
        Ok(Self { records, known: RwLock::new(known), making: tokio::sync::Mutex::default() })
    }

    /// Who this is. Takes the same time for every token that is not known.
    pub fn authenticate(&self, token: &str) -> Result<Identity, Refused> {
        if token.is_empty() {
            return Err(Refused::Missing);
        }
        let hash = hash(token);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned();
        let known = known.filter(|known| bool::from(known.hash.ct_eq(&hash))).ok_or(Refused::Unknown)?;
        if known.record.revoked_ms.is_some() {
            return Err(Refused::Revoked);
        }
        if known.record.expires_ms.is_some_and(|at| at <= clock::now_ms()) {
            return Err(Refused::Expired);
        }
        Ok(known.identity.clone())
    }

    /// The ids of the tokens that let an operator in.
    pub fn for_operators(&self) -> Vec<String> {
        let now = clock::now_ms();
        let valid = self.list().into_iter().filter(|token| token.lets_operators_in(now));
        valid.map(|token| token.id).collect()
    }

    /// Makes a token. This is the only time that it is seen.
    pub async fn create(&self, new: NewToken) -> Result<(TokenRecord, String), CreateError> {
        let _making = self.making.lock().await;
        if let Some(taken) = self.speaks_as_another(&new.name, new.role) {
            return Err(CreateError::Taken(taken));
        }
        let token = fresh();
        let record = self.adopt(&token, new).await?;
        Ok((record, token))
    }

    /// Takes in a token that exists already: the operator's, from its file, after the store was lost.
    pub async fn adopt(&self, token: &str, new: NewToken) -> Result<TokenRecord, StoreError> {
        self.adopt_as(format!("tok_{}", uuid::Uuid::now_v7().simple()), token, new).await
    }

    /// Opens a session of the console: an operator's token that ends by itself. Sessions that are over make room, so that
    /// signing in every day does not fill the list of tokens.
    pub async fn open_console_session(&self, life_ms: i64) -> Result<(TokenRecord, String), StoreError> {
        let now = clock::now_ms();
        let over = |token: &TokenRecord| {
            is_console_session(&token.id)
                && (token.revoked_ms.is_some() || token.expires_ms.is_some_and(|at| at <= now))
        };
        for token in self.list().into_iter().filter(over) {
            self.records.delete(BUCKET, &token.id).await?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, known| known.record.id != token.id);
        }
        let new = NewToken {
            name: "console".into(),
            role: Role::Operator,
            tools: Vec::new(),
            node_id: None,
            expires_ms: Some(now.saturating_add(life_ms)),
            channels: ChannelGrant::default(),
        };
        let token = fresh();
        let id = format!("{CONSOLE}{}", uuid::Uuid::now_v7().simple());
        let record = self.adopt_as(id, &token, new).await?;
        Ok((record, token))
    }

    async fn adopt_as(&self, id: String, token: &str, new: NewToken) -> Result<TokenRecord, StoreError> {
        let record = TokenRecord {
            id,
            name: new.name,
            role: new.role.as_str().into(),
            hash: blake3::Hash::from(hash(token)).to_hex().to_string(),
            created_ms: clock::now_ms(),
            expires_ms: new.expires_ms,
            revoked_ms: None,
            tools: new.tools,
            node_id: new.node_id,
            channels: new.channels,
        };
        self.store(&record, Expect::Absent).await?;
        Ok(record)
    }

    /// Revokes a token by its id, or by its name if that names one token only. Whoever uses it is cut off at once, whatever
    /// becomes of the disk; [`Tokens::persist`] makes it last. One whose revocation was not written is found again. The last
    /// one for operators goes only where that is said.
    pub fn revoke(&self, id_or_name: &str, even_last_operator: bool) -> Result<TokenRecord, NotRevoked> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let valid = || known.iter().filter(|(_, known)| known.record.revoked_ms.is_none() || !known.written);
        let mut found: Vec<_> = valid().filter(|(_, known)| known.record.id == id_or_name).collect();
        if found.is_empty() {
            found = valid().filter(|(_, known)| known.record.name == id_or_name).collect();
        }
        let [(hash, old)] = found[..] else { return Err(NotRevoked::Unclear) };
        let now = clock::now_ms();
        let others = || known.values().filter(|other| other.record.id != old.record.id);
        if !even_last_operator
            && old.record.lets_operators_in(now)
            && !others().any(|other| other.record.lets_operators_in(now))
        {
            return Err(NotRevoked::LastOperator);
        }
        let (hash, old) = (*hash, Arc::clone(old));
        let revoked_ms = old.record.revoked_ms.or(Some(now));
        let record = TokenRecord { revoked_ms, ..old.record.clone() };
        let revoked = Known { record: record.clone(), hash: old.hash, identity: old.identity.clone(), written: false };
        known.insert(hash, Arc::new(revoked));
        drop(known);
        old.identity.revoked.cancel();
        Ok(record)
    }

    /// Puts a revocation on disk, so that it survives a restart.
    pub async fn persist(&self, record: &TokenRecord) -> Result<(), StoreError> {
        self.store(record, Expect::Anything).await
    }

    /// All tokens, oldest first, revoked ones included.
    pub fn list(&self) -> Vec<TokenRecord> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut records: Vec<_> = known.values().map(|known| known.record.clone()).collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records
    }

    /// Why a token of this name could speak in channels as if it were somebody else's, if it could. A participant's name is
    /// its own among all who may speak; the operator's is nobody else's.
    fn speaks_as_another(&self, name: &str, role: Role) -> Option<String> {
        if !role.may_call_tools() {
            return None;
        }
        if OPERATORS.contains(&name) && role != Role::Operator {
            return Some(format!("\"{name}\" is an operator's name, under which nobody else can speak"));
        }
        let now = clock::now_ms();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let speaks = |other: &TokenRecord| {
            other.name == name
                && other.revoked_ms.is_none()
                && other.expires_ms.is_none_or(|at| at > now)
                && match Role::parse(&other.role) {
                    Some(Role::Participant) => true,
                    Some(Role::Node | Role::Monitor) | None => false,
                    Some(_) => role == Role::Participant,
                }
        };
        known.values().any(|known| speaks(&known.record)).then(|| {
            format!(
                "there is a valid token \"{}\" already, and in channels the name says who speaks",
                crate::redact::printable(name)
            )
        })
    }

    /// Whether there ever was a token for nodes. Revoking the last one must not let in whoever comes without.
    pub fn any_for_nodes(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|known| known.record.role == Role::Node.as_str())
    }

    async fn store(&self, record: &TokenRecord, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(record).unwrap_or_default().into();
        self.records.put(BUCKET, &record.id, value, expect).await?;
        if let Some((hash, mut known)) = Known::new(record.clone()) {
            let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(old) = all.get(&hash) {
                // Whoever holds the identity listens to this one.
                known.identity = old.identity.clone();
            }
            all.insert(hash, Arc::new(known));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Known {
    fn new(record: TokenRecord) -> Option<(Hash, Self)> {
        let hash = decode(&record.hash)?;
        let principal = Principal {
            id: record.id.as_str().into(),
            name: record.name.as_str().into(),
            role: Role::parse(&record.role)?,
            tools: record.tools.iter().map(|tool| Pattern::new(tool)).collect(),
        };
        let identity = Identity {
            principal: Arc::new(principal),
            revoked: CancellationToken::new(),
            expires_ms: record.expires_ms,
            node_id: record.node_id.as_deref().map(Into::into),
            channels: Arc::new(record.channels.clone()),
        };
        Some((hash, Self { record, hash, identity, written: true }))
    }
}

fn fresh() -> String {
    format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
}

/// Whether a token is a session of the console, by its id.
pub fn is_console_session(id: &str) -> bool {
    id.starts_with(CONSOLE)
}

fn hash(token: &str) -> Hash {
    *blake3::hash(token.as_bytes()).as_bytes()
}

fn decode(hex: &str) -> Option<Hash> {
    blake3::Hash::from_hex(hex).ok().map(|hash| *hash.as_bytes())
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub(crate) fn same_secret(a: &str, b: &str) -> bool {
    hash(a).ct_eq(&hash(b)).into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memory::MemoryRecords;

    #[tokio::test]
    async fn the_last_token_for_operators_goes_only_where_that_is_said() {
        let tokens = Tokens::load(Arc::new(MemoryRecords::default())).await.unwrap();
        let make = async |name: &str, expires_ms| {
            let new = NewToken {
                name: name.into(),
                role: Role::Operator,
                tools: Vec::new(),
                node_id: None,
                expires_ms,
                channels: ChannelGrant::default(),
            };
            tokens.create(new).await.unwrap()
        };
        make("first", None).await;
        make("second", None).await;
        make("over", Some(1)).await;
        tokens.open_console_session(60_000).await.unwrap();
        assert!(tokens.revoke("first", false).is_ok());
        assert_eq!(tokens.revoke("second", false).unwrap_err(), NotRevoked::LastOperator);
        assert!(tokens.revoke("over", false).is_ok(), "it let nobody in");
        assert!(tokens.revoke("second", true).is_ok());
    }

    #[tokio::test]
    async fn a_full_disk_keeps_no_token_alive() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = Tokens::load(Arc::clone(&records) as _).await.unwrap();
        let new = NewToken {
            name: "bot".into(),
            role: Role::Agent,
            tools: Vec::new(),
            node_id: None,
            expires_ms: None,
            channels: ChannelGrant::default(),
        };
        let (_, token) = tokens.create(new).await.unwrap();
        let identity = tokens.authenticate(&token).unwrap();

        records.full.store(true, Ordering::Relaxed);
        let revoked = tokens.revoke("bot", false).unwrap();
        assert!(tokens.persist(&revoked).await.is_err());
        assert!(identity.revoked.is_cancelled());
        assert_eq!(tokens.authenticate(&token).unwrap_err(), Refused::Revoked);

        // Repeated once there is room, it lasts.
        records.full.store(false, Ordering::Relaxed);
        let again = tokens.revoke("bot", false).expect("what is not written can be repeated");
        tokens.persist(&again).await.unwrap();
        assert_eq!(tokens.revoke("bot", false).unwrap_err(), NotRevoked::Unclear);
        let restarted = Tokens::load(records as _).await.unwrap();
        assert_eq!(restarted.authenticate(&token).unwrap_err(), Refused::Revoked);
    }
}
