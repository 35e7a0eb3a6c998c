//! The methods that programs declared last. They stay valid across a reconnect: some clients
//! declare their methods only once. Between a connection's join and its metadata, nothing would
//! be declared.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

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

impl Declared {
    pub(crate) fn get(&self, member: &Member) -> Option<&Arc<str>> {
        self.methods.get(&program(member))
    }

    /// Replaces what a program declared. An empty list is a declaration, too: calls of a program
    /// that offers nothing are refused, and not sent to it.
    pub(crate) fn set(&mut self, member: &Member, methods: &str) {
        self.remove(member);
        let program = program(member);
        self.bytes += methods.len();
        self.methods.insert(program.clone(), methods.into());
        self.order.push_back(program);
        while self.methods.len() > MAX_PROGRAMS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.methods.remove(&oldest).map_or(0, |methods| methods.len());
        }
    }

    /// Removes the methods of a program that has left for good.
    pub(crate) fn remove(&mut self, member: &Member) {
        let program = program(member);
        if let Some(methods) = self.methods.remove(&program) {
            self.bytes -= methods.len();
            self.order.retain(|other| *other != program);
        }
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
    fn only_so_much_is_kept() {
        let mut declared = Declared::default();
        for n in 0..=MAX_PROGRAMS {
            declared.set(&member(&n.to_string(), None), "[1]");
        }
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
