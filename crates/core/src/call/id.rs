//! Ids of calls, and tables keyed by them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;

use uuid::Uuid;

/// A unique id, ordered by the time of the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(Uuid);

/// A table of calls keyed by id.
pub(crate) type ByCallId<T> = HashMap<CallId, T, BuildHasherDefault<CallIdHasher>>;

impl Hash for CallId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The random half of the id.
        state.write_u64(self.0.as_u64_pair().1);
    }
}

/// A hasher that uses the id itself as the hash. The gateway has chosen the id at random, so it is
/// evenly spread and unknown to attackers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CallIdHasher(u64);

impl Hasher for CallIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Tables use the top bits as a tag, and there the variant of a UUID is always the same.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

impl CallId {
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the id as text, without an allocation.
    pub fn encode(self, buffer: &mut [u8; Self::LEN]) -> &str {
        self.0.as_hyphenated().encode_lower(buffer)
    }

    /// The length of the id as text.
    pub const LEN: usize = uuid::fmt::Hyphenated::LENGTH;
}

impl Default for CallId {
    fn default() -> Self {
        Self::new()
    }
}

impl FromStr for CallId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::from_str(text).map(Self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
