//! Tokens: 256 random bits, shown once, kept as hashes, bound to a principal, revocable at once.

mod identity;
mod stored;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Role, clock};
use subtle::ConstantTimeEq as _;

pub use identity::{ChannelGrant, Identity};
pub(crate) use stored::MODEL_TOOL;
pub use stored::TokenRecord;
use stored::{Hash, Known};

/// Makes our tokens recognisable to secret scanners, and to people.
const PREFIX: &str = "sb_";

/// What the operator's own tokens are called, in its file and in the console.
const OPERATORS: [&str; 2] = ["operator", "console"];

/// How the ids of the console's sessions begin.
const CONSOLE: &str = "console_";
/// The first part of the ids of tokens that the demo made for its node.
const DEMO: &str = "demo_";

/// All tokens of this gateway. The store has them; look-ups go to the copy in memory.
pub struct Tokens {
    records: Arc<dyn Records>,
    known: RwLock<HashMap<Hash, Arc<Known>>>,
    /// What is wrong with each record that says nothing of which token it is for, or what that may do.
    unreadable: Vec<String>,
    /// Held while one is made, from the look at the names that are taken to the moment when this one is.
    making: tokio::sync::Mutex<()>,
}

/// What a new token is to be.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    pub tools: Vec<String>,
    pub models: Vec<String>,
    pub node_id: Option<String>,
    pub expires_ms: Option<i64>,
    pub channels: ChannelGrant,
}

impl NewToken {
    /// A token that is not narrowed, and does not end.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        let (tools, models, channels) = (Vec::new(), Vec::new(), ChannelGrant::default());
        Self { name: name.into(), role, tools, models, node_id: None, expires_ms: None, channels }
    }
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
        let (known, unreadable) = stored::all(&*records).await?;
        let known = known.into_iter().map(|known| (known.hash, Arc::new(known))).collect();
        Ok(Self { records, known: RwLock::new(known), unreadable, making: tokio::sync::Mutex::default() })
    }

    /// What is wrong with those records of which it cannot be told what they allow. Nobody comes in with them; and as they
    /// may be any token's, what depends on there being none of a kind has to reckon with them.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Whether there never was a token.
    pub fn is_new(&self) -> bool {
        self.unreadable.is_empty() && self.known.read().unwrap_or_else(PoisonError::into_inner).is_empty()
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
            stored::delete(&*self.records, &token.id).await?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, known| known.record.id != token.id);
        }
        let new =
            NewToken { expires_ms: Some(now.saturating_add(life_ms)), ..NewToken::new("console", Role::Operator) };
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
            models: new.models,
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

    /// Whether there ever was a token for nodes, apart from the demo's. Revoking the last one must not let in nodes that
    /// come without a token.
    pub fn any_for_nodes(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = known.values().map(|known| &known.record);
        !self.unreadable.is_empty() || known.any(|token| token.role == Role::Node.as_str() && !is_of_demo(&token.id))
    }

    /// Creates the token of the demo's node. It does not shut out nodes without a token, because no operator asked for it.
    pub async fn create_for_demo(&self) -> Result<String, StoreError> {
        let new = NewToken { node_id: Some("demo".into()), ..NewToken::new("demo-node", Role::Node) };
        let token = fresh();
        self.adopt_as(format!("{DEMO}{}", uuid::Uuid::now_v7().simple()), &token, new).await?;
        Ok(token)
    }

    async fn store(&self, record: &TokenRecord, expect: Expect) -> Result<(), StoreError> {
        let mut known = stored::put(&*self.records, record, expect).await?;
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = all.get(&known.hash) {
            // Whoever holds the identity listens to this one.
            known.identity = old.identity.clone();
        }
        all.insert(known.hash, Arc::new(known));
        Ok(())
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

fn fresh() -> String {
    format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
}

/// Whether a token is a session of the console, by its id.
/// Whether a token is that of the demo's node.
pub fn is_of_demo(id: &str) -> bool {
    id.starts_with(DEMO)
}

pub fn is_console_session(id: &str) -> bool {
    id.starts_with(CONSOLE)
}

fn hash(token: &str) -> Hash {
    *blake3::hash(token.as_bytes()).as_bytes()
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

    fn new(name: &str, role: Role) -> NewToken {
        NewToken::new(name, role)
    }

    #[tokio::test]
    async fn a_token_of_an_older_gateway_is_as_narrow_as_it_says() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = Tokens::load(Arc::clone(&records) as _).await.unwrap();
        let (record, token) = tokens.create(new("page", Role::Participant)).await.unwrap();
        let mut old = serde_json::to_value(&record).unwrap();
        old["tools"] = serde_json::json!(["demo_*", "models/gpt*"]);
        records.put("tokens", &record.id, old.to_string().into(), Expect::Anything).await.unwrap();
        let tokens = Tokens::load(records as _).await.unwrap();
        let identity = tokens.authenticate(&token).unwrap();
        let principal = &identity.principal;
        assert!(principal.includes(&["demo_echo"]) && !principal.includes(&["models/gpt"]));
        assert!(principal.may_ask("gpt-9") && !principal.may_ask("other"));
        assert!(!identity.rights("room").read, "it names tools and models, so it has no channels");
        assert_eq!(tokens.list()[0].models, ["gpt*"]);
    }

    #[tokio::test]
    async fn the_last_token_for_operators_goes_only_where_that_is_said() {
        let tokens = Tokens::load(Arc::new(MemoryRecords::default())).await.unwrap();
        let make = async |name: &str, expires_ms| {
            tokens.create(NewToken { expires_ms, ..new(name, Role::Operator) }).await.unwrap()
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
    async fn a_record_that_cannot_be_read_is_named_and_opens_nothing() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = Tokens::load(Arc::clone(&records) as _).await.unwrap();
        assert!(tokens.is_new() && !tokens.any_for_nodes());
        let (record, token) = tokens.create(new("builder", Role::Node)).await.unwrap();
        let good = serde_json::to_value(&record).unwrap();
        let damages = [("hash", "no hash".into()), ("role", "admiral".into()), ("id", "tok_other".into())];
        let damages = damages.into_iter().chain([("tools", serde_json::Value::from("all")), ("name", 5.into())]);
        for (field, value) in damages {
            let mut bad = good.clone();
            bad[field] = value;
            records.put("tokens", &record.id, bad.to_string().into(), Expect::Anything).await.unwrap();
            let tokens = Tokens::load(Arc::clone(&records) as _).await.unwrap();
            let [said] = tokens.unreadable() else { panic!("{field}: {:?}", tokens.unreadable()) };
            assert!(said.contains(&record.id), "{said}");
            assert_eq!(tokens.authenticate(&token).unwrap_err(), Refused::Unknown);
            // It may have been the only token for nodes: they are not let in without one because it cannot be read.
            assert!(tokens.any_for_nodes() && !tokens.is_new(), "{field}");
        }
    }

    #[tokio::test]
    async fn a_full_disk_keeps_no_token_alive() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = Tokens::load(Arc::clone(&records) as _).await.unwrap();
        let (_, token) = tokens.create(new("bot", Role::Agent)).await.unwrap();
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
