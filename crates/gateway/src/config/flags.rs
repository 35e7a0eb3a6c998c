//! The command line flags that set a key. This table defines the options, parses them, and names
//! the flag that set a key.

use super::keys::find;

/// A flag and the key that it sets.
#[derive(Debug)]
pub struct Flag {
    /// The name without leading dashes.
    pub long: &'static str,
    pub key: &'static str,
    /// The name of the value in the help. `None` means that the flag has no value and sets the key
    /// to `true`.
    pub value: Option<&'static str>,
    /// Whether all commands accept the flag, or only those that use the gateway's whole
    /// configuration.
    pub everywhere: bool,
}

pub const FLAGS: [Flag; 5] = [
    Flag { long: "data-dir", key: "data.dir", value: Some("DIR"), everywhere: true },
    Flag { long: "listen", key: "server.listen", value: Some("ADDR"), everywhere: false },
    Flag { long: "tls-cert", key: "server.tls_cert", value: Some("FILE"), everywhere: false },
    Flag { long: "tls-key", key: "server.tls_key", value: Some("FILE"), everywhere: false },
    Flag { long: "insecure", key: "server.insecure", value: None, everywhere: false },
];

/// Returns the flag that sets a key, with dashes.
pub fn flag_name(key: &str) -> Option<String> {
    FLAGS.iter().find(|flag| flag.key == key).map(|flag| format!("--{}", flag.long))
}

impl Flag {
    /// Returns the meaning of the flag's key.
    pub fn meaning(&self) -> &'static str {
        find(self.key).map_or("", |known| known.meaning)
    }
}
