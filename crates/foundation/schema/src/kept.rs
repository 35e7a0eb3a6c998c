//! The cache of compiled schemas, within a memory budget.
//!
//! A compiled schema takes a hundred times the memory of its text, and the providers control their
//! number. The first schemas that are called are stored with their tools, where access is free.
//! When their budget is used up, all others share an LRU cache. An evicted schema is compiled again
//! at its next call.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// An item that knows its size in memory.
pub(super) trait Sizeable {
    fn bytes(&self) -> usize;
}

/// The memory budgets for items owned by their users, and for cached items.
#[derive(Debug)]
pub(super) struct Room<T: 'static> {
    most_owned: usize,
    most_shelved: usize,
    owned: AtomicUsize,
    shelf: Mutex<Shelf<T>>,
    next: AtomicU64,
    told: AtomicBool,
}

#[derive(Debug)]
struct Shelf<T> {
    bytes: usize,
    /// Increases with each use.
    uses: u64,
    kept: Option<HashMap<u64, (Arc<T>, u64)>>,
}

impl<T: Sizeable> Room<T> {
    pub(super) const fn new(most_owned: usize, most_shelved: usize) -> Self {
        Self {
            most_owned,
            most_shelved,
            owned: AtomicUsize::new(0),
            shelf: Mutex::new(Shelf { bytes: 0, uses: 0, kept: None }),
            next: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// Stores an item with its owner, or in the cache.
    pub(super) fn keep(&'static self, item: T) -> Kept<T> {
        let bytes = item.bytes();
        let within = |owned: usize| owned.checked_add(bytes).filter(|sum| *sum <= self.most_owned);
        if self.owned.try_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok() {
            return Kept::Owned(Owned { item, bytes, room: self });
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "compiled tool schemas have used up their budget of {} MiB; further schemas share a cache of {} MiB, \
                 and are compiled again after an eviction",
                self.most_owned >> 20,
                self.most_shelved >> 20
            );
        }
        let place = Place { id: self.next.fetch_add(1, Ordering::Relaxed), room: self };
        self.shelve(place.id, Arc::new(item));
        Kept::Shelved(place)
    }

    /// Returns the bytes of all stored items.
    pub(super) fn bytes(&self) -> usize {
        self.owned.load(Ordering::Relaxed) + self.shelf(|shelf| shelf.bytes)
    }

    fn shelve(&self, id: u64, item: Arc<T>) {
        let gone = self.shelf(|shelf| {
            let mut gone = Vec::new();
            shelf.bytes += item.bytes();
            shelf.uses += 1;
            let uses = shelf.uses;
            let kept = shelf.kept.get_or_insert_default();
            gone.extend(kept.insert(id, (item, uses)).map(|(old, _)| old));
            let mut bytes = shelf.bytes - gone.iter().map(|old| old.bytes()).sum::<usize>();
            // The new item is never evicted, whatever its size, because it is about to be used.
            while bytes > self.most_shelved {
                let others = kept.iter().filter(|(other, _)| **other != id);
                let Some(oldest) = others.min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id)
                else {
                    break;
                };
                let Some((old, _)) = kept.remove(&oldest) else { break };
                bytes -= old.bytes();
                gone.push(old);
            }
            shelf.bytes = bytes;
            gone
        });
        // Dropping large items takes a while, so it happens outside of the cache's lock.
        drop(gone);
    }

    fn shelf<R>(&self, work: impl FnOnce(&mut Shelf<T>) -> R) -> R {
        work(&mut self.shelf.lock())
    }
}

/// A stored item.
#[derive(Debug)]
pub(super) enum Kept<T: Sizeable + 'static> {
    Owned(Owned<T>),
    Shelved(Place<T>),
}

/// An item that lives as long as its owner.
#[derive(Debug)]
pub(super) struct Owned<T: Sizeable + 'static> {
    item: T,
    bytes: usize,
    room: &'static Room<T>,
}

impl<T: Sizeable> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Sizeable> Drop for Owned<T> {
    fn drop(&mut self) {
        self.room.owned.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An item in the cache, which may have been evicted.
#[derive(Debug)]
pub(super) struct Place<T: Sizeable + 'static> {
    id: u64,
    room: &'static Room<T>,
}

impl<T: Sizeable> Drop for Place<T> {
    fn drop(&mut self) {
        let gone = self.room.shelf(|shelf| {
            let (gone, _) = shelf.kept.as_mut()?.remove(&self.id)?;
            shelf.bytes -= gone.bytes();
            Some(gone)
        });
        drop(gone);
    }
}

impl<T: Sizeable> Kept<T> {
    /// Returns whether the item is in memory.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Owned(_) => true,
            Self::Shelved(place) => place.room.shelf(|shelf| {
                shelf.kept.as_ref().is_some_and(|kept| kept.contains_key(&place.id))
            }),
        }
    }

    /// Returns the item. Creates it again if it was evicted.
    pub(super) fn get<E>(&self, again: impl FnOnce() -> Result<T, E>) -> Result<Handle<'_, T>, E> {
        let place = match self {
            Self::Owned(owned) => return Ok(Handle::Owned(owned)),
            Self::Shelved(place) => place,
        };
        let found = place.room.shelf(|shelf| {
            shelf.uses += 1;
            let (item, used) = shelf.kept.as_mut()?.get_mut(&place.id)?;
            *used = shelf.uses;
            Some(Arc::clone(item))
        });
        if let Some(found) = found {
            return Ok(Handle::Shared(found));
        }
        let made = Arc::new(again()?);
        place.room.shelve(place.id, Arc::clone(&made));
        Ok(Handle::Shared(made))
    }
}

pub(super) enum Handle<'k, T> {
    Owned(&'k T),
    Shared(Arc<T>),
}

impl<T> Deref for Handle<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Owned(item) => item,
            Self::Shared(item) => item,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Rule: stored items never exceed the budgets, and are available whenever they are used.

    use std::convert::Infallible;

    use super::*;

    impl Sizeable for &'static str {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn room(owned: usize, shelved: usize) -> &'static Room<&'static str> {
        Box::leak(Box::new(Room::new(owned, shelved)))
    }

    /// Gets the item, and returns whether it had to be created again.
    fn get(kept: &Kept<&'static str>, item: &'static str) -> bool {
        let mut anew = false;
        let again = || {
            anew = true;
            Ok::<_, Infallible>(item)
        };
        assert_eq!(*kept.get(again).unwrap(), item);
        anew
    }

    #[test]
    fn the_first_ones_stay_and_give_their_room_back() {
        let room = room(8, 0);
        let (first, second) = (room.keep("aaaa"), room.keep("bbbb"));
        let third = room.keep("cccc");
        assert!(matches!(
            (&first, &second, &third),
            (Kept::Owned(_), Kept::Owned(_), Kept::Shelved(_))
        ));
        drop(first);
        assert!(matches!(room.keep("dddd"), Kept::Owned(_)));
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room_and_is_made_anew() {
        let room = room(0, 8);
        let (first, second) = (room.keep("aaaa"), room.keep("bbbb"));
        assert!(!get(&first, "aaaa") && !get(&second, "bbbb") && !get(&first, "aaaa"));
        let third = room.keep("cccc");
        assert_eq!((first.is_here(), second.is_here(), third.is_here()), (true, false, true));
        assert!(get(&second, "bbbb") && !get(&third, "cccc"));
        assert_eq!((first.is_here(), room.bytes()), (false, 8));
    }

    #[test]
    fn one_that_is_too_large_for_the_shelf_is_there_alone_and_goes_with_its_tool() {
        let room = room(0, 8);
        let small = room.keep("aaaa");
        let large = room.keep("bbbbbbbbbbbb");
        assert_eq!((small.is_here(), large.is_here(), room.bytes()), (false, true, 12));
        drop(large);
        assert_eq!(room.bytes(), 0);
        assert!(get(&small, "aaaa"));
        assert_eq!(room.bytes(), 4);
    }
}
