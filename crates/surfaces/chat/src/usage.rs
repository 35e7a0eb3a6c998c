//! Token usage, summed over the rounds of one answer.

use serde_json::Value;

#[derive(Debug, Default)]
pub(crate) struct Usage(Option<Value>);

impl Usage {
    /// Adds the usage of one round: every number, at any depth, is added to the one at the same
    /// path.
    pub(crate) fn add(&mut self, round: Option<&Value>) {
        let Some(round) = round.filter(|round| round.is_object()) else { return };
        match &mut self.0 {
            Some(sum) => add(sum, round),
            None => self.0 = Some(round.clone()),
        }
    }

    pub(crate) fn sum(&self) -> Option<&Value> {
        self.0.as_ref()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.as_ref().and_then(|sum| sum["total_tokens"].as_u64()).unwrap_or(0)
    }
}

fn add(sum: &mut Value, more: &Value) {
    match (sum, more) {
        (Value::Object(sum), Value::Object(more)) => {
            for (name, value) in more {
                match sum.get_mut(name) {
                    Some(known) => add(known, value),
                    None => drop(sum.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Number(sum), Value::Number(more)) => {
            *sum = match (sum.as_u64(), more.as_u64()) {
                (Some(a), Some(b)) => a.saturating_add(b).into(),
                _ => serde_json::Number::from_f64(
                    sum.as_f64().unwrap_or(0.0) + more.as_f64().unwrap_or(0.0),
                )
                .unwrap_or_else(|| sum.clone()),
            }
        }
        (sum @ Value::Null, more) => *sum = more.clone(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_number_is_summed() {
        let mut usage = Usage::default();
        usage.add(Some(&Value::Null));
        assert_eq!(usage.sum(), None);
        usage.add(Some(&json!({ "total_tokens": 3, "details": { "cached": 1 }, "cost": 0.5 })));
        usage.add(Some(
            &json!({ "total_tokens": 4, "details": { "cached": 2, "audio": 1 }, "cost": 0.25 }),
        ));
        assert_eq!(
            usage.sum(),
            Some(
                &json!({ "total_tokens": 7, "details": { "cached": 3, "audio": 1 }, "cost": 0.75 })
            )
        );
        assert_eq!(usage.total(), 7);
    }
}
