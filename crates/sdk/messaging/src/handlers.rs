//! Event handlers that users register.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

type Handler<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// The handlers for one kind of event.
pub(crate) struct Handlers<T>(Arc<Mutex<Table<T>>>);

struct Table<T> {
    next: u64,
    handlers: BTreeMap<u64, Handler<T>>,
}

impl<T: 'static> Handlers<T> {
    pub(crate) fn add(&self, handler: impl Fn(&T) + Send + Sync + 'static) -> Subscription {
        let mut table = lock(&self.0);
        let id = table.next;
        table.next += 1;
        table.handlers.insert(id, Arc::new(handler));
        let table = Arc::downgrade(&self.0);
        Subscription { remove: Some(Box::new(move || remove(&table, id))) }
    }

    /// Calls all handlers. A handler that panics affects neither the client nor the others.
    pub(crate) fn call(&self, value: &T) {
        let handlers: Vec<Handler<T>> = lock(&self.0).handlers.values().cloned().collect();
        for handler in handlers {
            if catch_unwind(AssertUnwindSafe(|| handler(value))).is_err() {
                tracing::error!("a handler panicked");
            }
        }
    }
}

fn remove<T>(table: &Weak<Mutex<Table<T>>>, id: u64) {
    let removed = table.upgrade().and_then(|table| lock(&table).handlers.remove(&id));
    // The handler is dropped here, after the lock is released, because its destructor may run any
    // code.
    drop(removed);
}

fn lock<T>(table: &Mutex<Table<T>>) -> MutexGuard<'_, Table<T>> {
    table.lock()
}

impl<T> Default for Handlers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table { next: 0, handlers: BTreeMap::new() })))
    }
}

/// A registered handler. Dropping it removes the handler.
#[must_use = "dropping this removes the handler; call `forget` to keep it"]
pub struct Subscription {
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Subscription {
    /// Keeps the handler for the life of the client.
    pub fn forget(mut self) {
        self.remove = None;
    }

    /// Removes the handler, like dropping it.
    pub fn unsubscribe(self) {}
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_handler_is_called_until_its_subscription_ends() {
        let (handlers, seen) = (Handlers::<usize>::default(), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let seen = Arc::clone(&seen);
            move |by: &usize| {
                seen.fetch_add(*by, Ordering::Relaxed);
            }
        };
        let first = handlers.add(count());
        handlers.add(count()).forget();
        let bad = handlers.add(|_| panic!("a handler's own fault"));
        handlers.call(&1);
        assert_eq!(seen.load(Ordering::Relaxed), 2);
        drop((first, bad));
        handlers.call(&1);
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    }
}
