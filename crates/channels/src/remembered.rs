//! What the log knows of calls that were made before the gateway was restarted.

use serde::Deserialize;
use tokio::time::Instant;

use crate::GATEWAY;
use crate::calls::{Running, Standing};
use crate::channel::Channel;
use crate::history::sender_of;
use crate::publish::Refusal;

impl Channel {
    /// Whether the log has this call, which then must be the same participant's.
    pub(crate) async fn made_before(&self, id: &str, sender: &str) -> Result<bool, Refusal> {
        let found = self.hub.log.find(&self.stream, &format!("call:{id}")).await;
        let found = found.map_err(|error| Refusal::new("store-error", error.message))?;
        match found.and_then(|entry| sender_of(&entry.body)) {
            Some(author) if author != sender => Err(Refusal::new("conflict", "another participant has used this id")),
            found => Ok(found.is_some()),
        }
    }

    /// A call that was made before the gateway was restarted is known from the log.
    pub(crate) async fn remember_call(&self, id: &str) -> Result<(), Refusal> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stored {
            sender_id: String,
            payload: Asked,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Asked {
            provider_id: String,
        }
        let known = {
            let mut state = self.state();
            state.calls.result(id, "", false) != Standing::Unknown
                || state.offers().any(|link| link.caller(id).is_some())
        };
        if known {
            return Ok(());
        }
        let found = self.hub.log.find(&self.stream, &format!("call:{id}")).await;
        let found = found.map_err(|error| Refusal::new("store-error", error.message))?;
        if let Some(stored) = found.and_then(|entry| serde_json::from_slice::<Stored>(&entry.body).ok())
            && stored.payload.provider_id != GATEWAY
        {
            let (caller, provider) = (stored.sender_id.into(), stored.payload.provider_id.into());
            let call = Running { id: id.into(), caller, provider, persist: true, since: Instant::now(), routed: None };
            let _ = self.state().calls.begin(call);
        }
        Ok(())
    }
}
