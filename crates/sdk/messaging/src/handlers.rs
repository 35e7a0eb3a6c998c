//! Functions that are called when something happens.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type Handler<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// The functions for one kind of thing.
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

    /// Calls all of them. One that panics harms neither the client nor the others.
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
    // Dropped here, outside of the lock: it may hold anything.
    drop(removed);
}

fn lock<T>(table: &Mutex<Table<T>>) -> MutexGuard<'_, Table<T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Default for Handlers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table { next: 0, handlers: BTreeMap::new() })))
    }
}

/// A function that is called when something happens, until this is dropped.
#[must_use = "the function is not called any more once this is dropped; `forget` it to keep it"]
pub struct Subscription {
    remove: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Subscription {
    /// Keeps the function for as long as the client lives.
    pub fn forget(mut self) {
        self.remove = None;
    }

    /// Ends it, as dropping it does.
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
