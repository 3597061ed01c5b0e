//! One group's part of a source: what waits, what is out under a lease, what comes back. Time and chance are handed in.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::message::Stored;

/// The deliveries of one group of competing consumers.
#[derive(Debug, Default)]
pub(super) struct Group {
    ready: VecDeque<Entry>,
    /// By the moment they come back, with a number that keeps moments apart.
    delayed: BTreeMap<(Instant, u64), Entry>,
    in_flight: HashMap<u64, Flight>,
    /// The deliveries by the end of their lease.
    leases: BTreeSet<(Instant, u64)>,
    /// The ordering keys with a message that isn't settled, and what is held behind it.
    held: HashMap<Arc<str>, VecDeque<Entry>>,
    held_count: usize,
    pub(super) tally: Tally,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) deliveries: u64,
    pub(super) acknowledged: u64,
    pub(super) lost_acks: u64,
    pub(super) expired: u64,
}

/// A message that this group hasn't settled, or a copy of one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) message: Arc<Stored>,
    pub(super) deliveries: u32,
    copy: bool,
}

/// An entry that is with a consumer.
#[derive(Debug)]
struct Flight {
    entry: Entry,
    lease_ends: Instant,
}

/// The answer to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Acknowledge,
    /// Comes again after this delay.
    Again(Duration),
}

/// The chance that a delivery goes wrong.
#[derive(Debug)]
pub(super) struct Chance<'a> {
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) duplicates: f64,
    pub(super) reorder: usize,
}

impl Group {
    /// Takes in a newly published message.
    pub(super) fn admit(&mut self, message: Arc<Stored>) {
        let entry = Entry { message, deliveries: 0, copy: false };
        let Some(key) = &entry.message.key else { return self.ready.push_back(entry) };
        if let Some(held) = self.held.get_mut(key) {
            held.push_back(entry);
            self.held_count += 1;
        } else {
            self.held.insert(Arc::clone(key), VecDeque::new());
            self.ready.push_back(entry);
        }
    }

    /// Brings back what is due: deliveries whose lease has ended, and retries whose delay has.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(&(ends, delivery)) = self.leases.first()
            && ends <= now
        {
            self.leases.pop_first();
            if let Some(flight) = self.in_flight.remove(&delivery) {
                self.ready.push_back(flight.entry);
            }
        }
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            self.ready.push_back(first.remove());
        }
    }

    /// The next moment at which [`Group::advance`] has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let lease = self.leases.first().map(|(at, _)| *at);
        let delayed = self.delayed.first_key_value().map(|((at, _), _)| *at);
        lease.into_iter().chain(delayed).min()
    }

    /// Hands out the next message under a lease, as the delivery of this number.
    pub(super) fn take(&mut self, delivery: u64, now: Instant, lease: Duration, chance: &mut Chance) -> Option<Entry> {
        let mut entry = loop {
            let window = chance.reorder.min(self.ready.len());
            let index = if window > 1 { chance.rng.usize(..window) } else { 0 };
            let entry = self.ready.remove(index)?;
            if entry.message.expires > now {
                break entry;
            }
            self.tally.expired += 1;
            self.release_key(&entry);
        };
        entry.deliveries += 1;
        self.tally.deliveries += 1;
        if !entry.copy && chance.rng.f64() < chance.duplicates {
            self.copy(&entry, chance.rng.bool());
        }
        let lease_ends = after(now, lease);
        self.leases.insert((lease_ends, delivery));
        self.in_flight.insert(delivery, Flight { entry: entry.clone(), lease_ends });
        Some(entry)
    }

    /// Puts a copy of a delivery behind its ordering key, or else first or last among what is ready.
    fn copy(&mut self, entry: &Entry, first: bool) {
        let copy = Entry { copy: true, ..entry.clone() };
        let held = entry.message.key.as_ref().and_then(|key| self.held.get_mut(key));
        match (held, first) {
            (Some(held), _) => {
                held.push_front(copy);
                self.held_count += 1;
            }
            (None, true) => self.ready.push_front(copy),
            (None, false) => self.ready.push_back(copy),
        }
    }

    /// Settles a delivery; `false` if its lease was gone, in which case nothing changes.
    pub(super) fn settle(&mut self, delivery: u64, answer: Answer, now: Instant) -> bool {
        let Some(flight) = self.in_flight.remove(&delivery) else { return false };
        self.leases.remove(&(flight.lease_ends, delivery));
        match answer {
            Answer::Acknowledge => {
                self.tally.acknowledged += 1;
                self.release_key(&flight.entry);
            }
            Answer::Again(Duration::ZERO) => self.ready.push_back(flight.entry),
            Answer::Again(delay) => {
                self.delayed.insert((after(now, delay), delivery), flight.entry);
            }
        }
        true
    }

    /// Starts a delivery's lease anew; `false` if it was gone.
    pub(super) fn extend(&mut self, delivery: u64, now: Instant, lease: Duration) -> bool {
        let Some(flight) = self.in_flight.get_mut(&delivery) else { return false };
        self.leases.remove(&(flight.lease_ends, delivery));
        flight.lease_ends = after(now, lease);
        self.leases.insert((flight.lease_ends, delivery));
        true
    }

    /// Lets the next message of an ordering key go.
    fn release_key(&mut self, entry: &Entry) {
        let Some(key) = &entry.message.key else { return };
        match self.held.get_mut(key).and_then(VecDeque::pop_front) {
            Some(next) => {
                self.held_count -= 1;
                self.ready.push_back(next);
            }
            None => {
                self.held.remove(key);
            }
        }
    }

    /// The delivery of this number, while its lease lasts.
    pub(super) fn in_flight(&self, delivery: u64) -> Option<&Entry> {
        self.in_flight.get(&delivery).map(|flight| &flight.entry)
    }

    /// How many deliveries are with consumers.
    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// How many messages are with no consumer: ready, delayed, or held behind their key.
    pub(super) fn waiting_count(&self) -> usize {
        self.ready.len() + self.delayed.len() + self.held_count
    }

    /// Whether every message is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.in_flight.is_empty() && self.waiting_count() == 0
    }

    /// Loses the acknowledgement of a delivery: the message comes again at once.
    pub(super) fn lose_ack(&mut self, delivery: u64, now: Instant) {
        self.tally.lost_acks += 1;
        self.settle(delivery, Answer::Again(Duration::ZERO), now);
    }
}

/// The moment after this time; one that no clock can count to is years away.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_hours(30 * 365 * 24))
}
