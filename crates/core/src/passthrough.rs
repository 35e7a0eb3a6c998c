//! Data that passes between a provider and a surface without loss.

use sa_text::json::RawJson;

/// JSON in the format of one protocol. The core does not read it.
///
/// A provider and a surface with the same protocol exchange what the core's own fields cannot
/// express. All other surfaces use the core's own fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    /// The name of the protocol. The core only compares it.
    pub format: &'static str,
    pub json: RawJson,
}

impl Passthrough {
    pub fn new(format: &'static str, json: RawJson) -> Self {
        Self { format, json }
    }

    /// Returns the JSON if it has this format.
    pub fn in_format(&self, format: &str) -> Option<&RawJson> {
        (self.format == format).then_some(&self.json)
    }
}
