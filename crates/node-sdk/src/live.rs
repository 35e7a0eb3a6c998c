//! The running calls, indexed by their cancel tokens.
//!
//! A tool's context is plain data that any code can build or destructure. The link to the
//! connection therefore uses a field that the data has anyway: the token. All clones of a context
//! share it, on every task, and it is unique. A task-local would be lost in the tasks that a tool
//! spawns. A request id is the gateway's choice, and two gateways may choose the same.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::call::CallState;

/// The key is the token itself and not its address. While the token is in this map, no other token
/// can have its address.
static LIVE: LazyLock<Mutex<HashMap<CancellationToken, Arc<CallState>>>> =
    LazyLock::new(Mutex::default);

/// The entry of a running call. Dropping it removes the entry, however the call ends.
#[derive(Debug)]
pub(crate) struct Place(CancellationToken);

impl Place {
    pub(crate) fn take(token: &CancellationToken, call: &Arc<CallState>) -> Self {
        live().insert(token.clone(), Arc::clone(call));
        Self(token.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let call = live().remove(&self.0);
        // The call is dropped after the lock is released.
        drop(call);
    }
}

/// Returns the running call with this token.
pub(crate) fn find(token: &CancellationToken) -> Option<Arc<CallState>> {
    live().get(token).cloned()
}

fn live() -> MutexGuard<'static, HashMap<CancellationToken, Arc<CallState>>> {
    LIVE.lock()
}
