//! The calls that run, found by their cancel tokens.
//!
//! A tool's context is plain data that anybody can put together or take apart. What a tool can say while it runs therefore
//! hangs on something that the data has anyway: the token is shared by all clones of a context, in whatever task they are,
//! and is like no other one. (A task-local would be lost in the tasks that a tool spawns; a request's id is the gateway's
//! choice, and two gateways may choose the same.)

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::call::CallState;

/// The token itself is the key, and not its address: as long as it is in here, no other one can have that.
static LIVE: LazyLock<Mutex<HashMap<CancellationToken, Arc<CallState>>>> = LazyLock::new(Mutex::default);

/// A call's place among those that run. It is given up when this is dropped, in whatever way the call ends.
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
        // What it holds goes when the lock is free again.
        drop(call);
    }
}

/// The call with this token, as long as it runs.
pub(crate) fn find(token: &CancellationToken) -> Option<Arc<CallState>> {
    live().get(token).cloned()
}

fn live() -> MutexGuard<'static, HashMap<CancellationToken, Arc<CallState>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}
