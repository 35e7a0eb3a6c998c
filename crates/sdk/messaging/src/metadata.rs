//! The metadata of participants.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A method, as its participant advertises it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdvertisedMethod {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<Value>,
    #[serde(default, deserialize_with = "lenient_flag")]
    pub streaming: bool,
    /// The timeout that callers should use, in milliseconds.
    #[serde(default, deserialize_with = "lenient_millis", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// Reads a number in any notation. An unusable timeout does not invalidate the rest of the method.
fn lenient_millis<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let millis = Value::deserialize(deserializer)?.as_f64();
    Ok(millis.filter(|millis| (1.0..1e15).contains(millis)).map(|millis| millis.round() as u64))
}

fn lenient_flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Value::deserialize(deserializer)? == Value::Bool(true))
}

fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}

/// A participant of the channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Participant {
    pub id: String,
    /// All its metadata.
    pub metadata: Map<String, Value>,
}

impl Participant {
    /// Returns the name for people, or the id if it has none.
    pub fn name(&self) -> &str {
        self.text("name").unwrap_or(&self.id)
    }

    /// Returns the handle, which others may write in a message's `at`.
    pub fn handle(&self) -> Option<&str> {
        self.text("handle")
    }

    /// Returns the type, such as `agent` or `worker`.
    pub fn kind(&self) -> Option<&str> {
        self.text("type")
    }

    /// Returns the methods it offers. Invalid descriptions are left out.
    pub fn methods(&self) -> Vec<AdvertisedMethod> {
        let methods = self.metadata.get("methods").and_then(Value::as_array);
        methods
            .into_iter()
            .flatten()
            .filter_map(|method| AdvertisedMethod::deserialize(method).ok())
            .collect()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_about_themselves_is_taken_as_it_comes() {
        let said = r#"{"name":"Worker","methods":[{"name":"a"},7,{"name":"b","timeout":5,"streaming":true}]}"#;
        let worker = Participant { id: "w1".into(), metadata: serde_json::from_str(said).unwrap() };
        assert_eq!((worker.name(), worker.handle()), ("Worker", None));
        let methods = worker.methods();
        assert_eq!(
            methods.iter().map(|method| method.name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!((methods[1].timeout, methods[0].streaming), (Some(5), false));
        let said = r#"{"methods":[{"name":"a","timeout":1500.5,"streaming":null},{"name":"b","timeout":-1}]}"#;
        let methods =
            Participant { id: "w1".into(), metadata: serde_json::from_str(said).unwrap() }
                .methods();
        assert_eq!(
            methods.iter().map(|method| method.timeout).collect::<Vec<_>>(),
            [Some(1501), None]
        );
        assert_eq!(Participant { id: "x".into(), metadata: Map::new() }.name(), "x");
    }
}
