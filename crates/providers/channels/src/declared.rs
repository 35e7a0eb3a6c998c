//! The methods that programs declared last. They stay valid across a reconnect and a restart:
//! some clients declare their methods only once. Between a connection's join and its metadata,
//! nothing would be declared.
//!
//! Each channel has a bucket with one record for each program.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use sa_core::store::{Expect, Record, Records, StoreError};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;

use crate::channel::Member;

/// The maximum number of programs and bytes per channel.
const MAX_PROGRAMS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

/// A program of a participant. All its programs without an instance id count as one.
type Program = (Arc<str>, Option<Arc<str>>);

/// The methods of each program, as JSON text. The oldest declarations are dropped first.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    methods: HashMap<Program, Arc<str>>,
    order: VecDeque<Program>,
    bytes: usize,
}

/// A change of the stored declarations. Without methods, the program's record is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    program: Program,
    methods: Option<Arc<str>>,
}

impl Declared {
    /// Reads the records of a channel.
    pub(crate) fn load(mut records: Vec<(String, Record)>) -> Self {
        let mut declared = Self::default();
        // The bucket counts the revisions, so they have the order of the declarations.
        records.sort_by_key(|(_, record)| record.revision);
        for (key, record) in records {
            if let Ok(methods) = std::str::from_utf8(&record.value) {
                declared.insert(program_of(&key), methods.into());
            }
        }
        declared
    }

    pub(crate) fn get(&self, member: &Member) -> Option<&Arc<str>> {
        self.methods.get(&program(member))
    }

    /// Replaces what a program declared, and returns the changes to store. An empty list is a
    /// declaration, too: calls of a program that offers nothing are refused, and not sent to it.
    pub(crate) fn set(&mut self, member: &Member, methods: &str) -> Vec<Change> {
        let program = program(member);
        let (methods, before) = (Arc::<str>::from(methods), self.take(&program));
        let mut changes = Vec::new();
        if before.as_ref() != Some(&methods) {
            changes.push(Change { program: program.clone(), methods: Some(Arc::clone(&methods)) });
        }
        let dropped = self.insert(program, methods);
        changes.extend(dropped.into_iter().map(|program| Change { program, methods: None }));
        changes
    }

    /// Removes the methods of a program that has left for good.
    pub(crate) fn remove(&mut self, member: &Member) -> Option<Change> {
        let program = program(member);
        self.take(&program).map(|_| Change { program, methods: None })
    }

    /// Adds the newest declaration, and returns the programs whose declarations were dropped.
    fn insert(&mut self, program: Program, methods: Arc<str>) -> Vec<Program> {
        self.bytes += methods.len();
        self.methods.insert(program.clone(), methods);
        self.order.push_back(program);
        let mut dropped = Vec::new();
        while self.methods.len() > MAX_PROGRAMS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.methods.remove(&oldest).map_or(0, |methods| methods.len());
            dropped.push(oldest);
        }
        dropped
    }

    fn take(&mut self, program: &Program) -> Option<Arc<str>> {
        let methods = self.methods.remove(program)?;
        self.bytes -= methods.len();
        self.order.retain(|other| other != program);
        Some(methods)
    }
}

/// Returns the name of a channel's bucket.
pub(crate) fn bucket(channel: &str) -> String {
    format!("channel_methods:{channel}")
}

/// Stores changes. If one cannot be stored, its program must declare its methods again after a
/// restart.
pub(crate) async fn store(records: &dyn Records, bucket: &str, changes: &[Change]) {
    let store = async |Change { program, methods }: &Change| {
        let key = key_of(program);
        let stored = match methods {
            Some(methods) => {
                let value = Bytes::copy_from_slice(methods.as_bytes());
                records.put(bucket, &key, value, Expect::Anything).await.map(drop)
            }
            None => records.delete(bucket, &key).await.map(drop),
        };
        if let Err(error) = stored {
            warn!(bucket, participant = %program.0, %error, "cannot store declared methods");
        }
    };
    join_all(changes.iter().map(store)).await;
}

/// Deletes the declarations of a channel.
pub(crate) async fn delete_all(records: &dyn Records, channel: &str) -> Result<(), StoreError> {
    let bucket = bucket(channel);
    for (key, _) in records.sizes(&bucket).await? {
        records.delete(&bucket, &key).await?;
    }
    Ok(())
}

/// Returns the key of a program's record. The name of a participant has no line break.
fn key_of((participant, instance): &Program) -> String {
    match instance {
        Some(instance) => format!("{participant}\n{instance}"),
        None => participant.to_string(),
    }
}

fn program_of(key: &str) -> Program {
    match key.split_once('\n') {
        Some((participant, instance)) => (participant.into(), Some(instance.into())),
        None => (key.into(), None),
    }
}

fn program(member: &Member) -> Program {
    (Arc::clone(&member.participant), member.instance.clone())
}

/// Returns the text of the methods in a participant's metadata.
pub(crate) fn methods_in(metadata: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Only<'a> {
        #[serde(borrow)]
        methods: Option<&'a RawValue>,
    }
    serde_json::from_str::<Only<'_>>(metadata).ok()?.methods.map(RawValue::get)
}

/// Adds methods to metadata that has none.
pub(crate) fn with_methods(metadata: &str, methods: &str) -> String {
    let fields = metadata.trim().strip_suffix('}').unwrap_or("{").trim_end();
    let comma = if fields == "{" { "" } else { "," };
    format!("{fields}{comma}\"methods\":{methods}}}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use sa_socket::{Close, Outbox};

    use super::*;

    fn member(participant: &str, instance: Option<&str>) -> Member {
        Member {
            id: 1,
            participant: participant.into(),
            instance: instance.map(Into::into),
            outbox: Outbox::new(1, Close::new(1000, "")),
            reads: true,
            seen: 0,
            last: AtomicU64::new(0),
        }
    }

    #[test]
    fn each_program_has_its_own_methods() {
        let mut declared = Declared::default();
        let (one, two, none) = (member("w", Some("1")), member("w", Some("2")), member("w", None));
        declared.set(&one, "[1]");
        declared.set(&none, "[0]");
        assert_eq!(declared.get(&one).map(|methods| &**methods), Some("[1]"));
        assert_eq!(declared.get(&none).map(|methods| &**methods), Some("[0]"));
        assert_eq!(declared.get(&two), None);
        declared.set(&one, "[]");
        assert_eq!(declared.get(&one).map(|methods| &**methods), Some("[]"));
        declared.remove(&one);
        declared.remove(&none);
        assert!(declared.methods.is_empty() && declared.order.is_empty() && declared.bytes == 0);
    }

    #[test]
    fn changes_are_stored_and_loaded() {
        let mut declared = Declared::default();
        let (one, none) = (member("w", Some("1\n2")), member("w", None));
        let change = |member: &Member, methods: Option<&str>| Change {
            program: program(member),
            methods: methods.map(Into::into),
        };
        assert_eq!(declared.set(&one, "[1]"), [change(&one, Some("[1]"))]);
        assert_eq!(declared.set(&one, "[1]"), [], "nothing has changed");
        assert_eq!(declared.set(&one, "[2]"), [change(&one, Some("[2]"))]);
        assert_eq!(declared.remove(&none), None);
        assert_eq!(declared.remove(&one), Some(change(&one, None)));

        let record = |member: &Member, methods: &'static str, revision| {
            let value = Bytes::from_static(methods.as_bytes());
            (key_of(&program(member)), Record { value, revision })
        };
        let loaded = Declared::load(vec![record(&none, "[0]", 7), record(&one, "[1]", 5)]);
        assert_eq!(loaded.get(&one).map(|methods| &**methods), Some("[1]"));
        assert_eq!(loaded.get(&none).map(|methods| &**methods), Some("[0]"));
        assert_eq!(loaded.order, [program(&one), program(&none)], "the oldest first");
    }

    #[test]
    fn the_oldest_declarations_are_dropped() {
        let mut declared = Declared::default();
        for n in 0..MAX_PROGRAMS {
            declared.set(&member(&n.to_string(), None), "[1]");
        }
        let changes = declared.set(&member("last", None), "[1]");
        let dropped = Change { program: program(&member("0", None)), methods: None };
        assert_eq!(changes[1..], [dropped]);
        assert_eq!(
            (declared.methods.len(), declared.get(&member("0", None))),
            (MAX_PROGRAMS, None)
        );
        let large = "x".repeat(MAX_BYTES - 3);
        declared.set(&member("large", None), &large);
        assert_eq!(declared.methods.len(), 2);
        assert!(declared.bytes <= MAX_BYTES);
    }

    #[test]
    fn methods_are_added_to_metadata() {
        let check = |metadata: &str| {
            let whole = with_methods(metadata, "[1]");
            let mut expected: serde_json::Value = serde_json::from_str(metadata).unwrap();
            expected["methods"] = serde_json::json!([1]);
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&whole).unwrap(),
                expected,
                "{whole}"
            );
            assert_eq!(methods_in(&whole), Some("[1]"));
        };
        for metadata in ["{}", " { } ", r#"{"a":{}}"#, r#"{"a":"}"}"#] {
            check(metadata);
        }
        assert_eq!(methods_in("{}"), None);
    }
}
