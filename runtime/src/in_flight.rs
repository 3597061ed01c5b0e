//! Messages in flight in this process: a copy of one is set aside, and the first one's proof settles it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::key::Key;
use crate::store::ConsumerId;

type Name = (ConsumerId, Key);

/// The messages that are running, each with the copies that wait for its outcome.
#[derive(Debug)]
pub(crate) struct InFlight<C>(Arc<Mutex<HashMap<Name, Vec<C>>>>);

impl<C> Clone for InFlight<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Default for InFlight<C> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// The right to run one message. Dropped, it drops the copies that still wait: their leases bring them back.
#[derive(Debug)]
pub(crate) struct Running<C> {
    in_flight: InFlight<C>,
    /// `None` once the run has ended: the entry may then be another's.
    name: Option<Name>,
}

impl<C> InFlight<C> {
    fn map(&self) -> MutexGuard<'_, HashMap<Name, Vec<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to run the message, unless a copy of it is running: then this one is set aside.
    pub(crate) fn enter(&self, consumer: ConsumerId, key: &Key, copy: C) -> Result<(Running<C>, C), SetAside> {
        let name = (consumer, key.clone());
        let mut map = self.map();
        if let Some(copies) = map.get_mut(&name) {
            copies.push(copy);
            return Err(SetAside);
        }
        map.insert(name.clone(), Vec::new());
        drop(map);
        Ok((Running { in_flight: self.clone(), name: Some(name) }, copy))
    }
}

/// A copy of this message is running, and this one waits for its outcome.
#[derive(Debug)]
pub(crate) struct SetAside;

impl<C> Running<C> {
    /// Ends the run and takes the copies that waited for it.
    pub(crate) fn finish(mut self) -> Vec<C> {
        self.end()
    }

    fn end(&mut self) -> Vec<C> {
        self.name.take().and_then(|name| self.in_flight.map().remove(&name)).unwrap_or_default()
    }
}

impl<C> Drop for Running<C> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: ConsumerId = ConsumerId(1);

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    #[test]
    fn copies_wait_for_the_first_in_their_order() {
        let in_flight = InFlight::default();
        let (first, _) = in_flight.enter(SHOP, &key("a"), 0).unwrap();
        assert!(in_flight.enter(SHOP, &key("a"), 1).is_err());
        assert!(in_flight.enter(SHOP, &key("a"), 2).is_err());
        assert_eq!(first.finish(), [1, 2]);
    }

    #[test]
    fn another_key_or_consumer_does_not_wait() {
        let in_flight = InFlight::default();
        let first = in_flight.enter(SHOP, &key("a"), 0).unwrap();
        assert!(in_flight.enter(SHOP, &key("b"), 1).is_ok());
        assert!(in_flight.enter(ConsumerId(2), &key("a"), 2).is_ok());
        drop(first);
    }

    #[test]
    fn end_of_a_finished_run_leaves_the_next_one_alone() {
        let in_flight = InFlight::default();
        let (first, _) = in_flight.enter(SHOP, &key("a"), 0).unwrap();
        assert!(first.finish().is_empty());
        let (second, _) = in_flight.enter(SHOP, &key("a"), 1).unwrap();
        assert!(in_flight.enter(SHOP, &key("a"), 2).is_err());
        assert_eq!(second.finish(), [2]);
    }

    #[test]
    fn run_that_dies_drops_its_copies_and_makes_room() {
        let in_flight = InFlight::default();
        let copy = Arc::new(());
        let first = in_flight.enter(SHOP, &key("a"), Arc::new(())).unwrap();
        assert!(in_flight.enter(SHOP, &key("a"), Arc::clone(&copy)).is_err());
        drop(first);
        assert_eq!(Arc::strong_count(&copy), 1, "its lease brings it back");
        assert!(in_flight.enter(SHOP, &key("a"), copy).is_ok());
    }
}
