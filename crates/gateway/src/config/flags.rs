//! Flags of the command line that set a key. One table makes the options, reads them, and says afterwards which of them
//! has set what.

use super::settings::KEYS;

/// A flag, and the key that it sets.
#[derive(Debug)]
pub struct Flag {
    /// Without its dashes.
    pub long: &'static str,
    pub key: &'static str,
    /// What its value is called in the help. `None`: it has no value, and sets the key to `true`.
    pub value: Option<&'static str>,
    /// Whether every command has it, and not only those that are about a gateway's whole configuration.
    pub everywhere: bool,
}

pub const FLAGS: [Flag; 5] = [
    Flag { long: "data-dir", key: "data.dir", value: Some("DIR"), everywhere: true },
    Flag { long: "listen", key: "server.listen", value: Some("ADDR"), everywhere: false },
    Flag { long: "tls-cert", key: "server.tls_cert", value: Some("FILE"), everywhere: false },
    Flag { long: "tls-key", key: "server.tls_key", value: Some("FILE"), everywhere: false },
    Flag { long: "insecure", key: "server.insecure", value: None, everywhere: false },
];

/// The flag that sets a key, as it is typed.
pub fn flag_name(key: &str) -> Option<String> {
    FLAGS.iter().find(|flag| flag.key == key).map(|flag| format!("--{}", flag.long))
}

impl Flag {
    /// What its key means.
    pub fn meaning(&self) -> &'static str {
        KEYS.iter().find(|(key, _)| *key == self.key).map_or("", |(_, meaning)| *meaning)
    }
}
