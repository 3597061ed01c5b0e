//! One source, shared by its publishers and consumers: its state under a lock, and the waiting for it to change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inboxed_runtime::broker::{BrokerError, Incoming, Lease, Settled};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Counts;
use super::group::{Answer, Chance, Group};
use super::message::{Message, Stored};
use super::options::Options;
use super::readers::Readers;
use super::source::MemoryToken;

/// Numbers deliveries over all brokers of the process, so that no delivery's token settles another.
static DELIVERIES: AtomicU64 = AtomicU64::new(0);

/// A source.
#[derive(Debug)]
pub(super) struct Topic {
    name: Arc<str>,
    pub(super) options: Arc<Options>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    readers: Readers,
    published: u64,
    /// Whether receivers end once everything is settled.
    ending: bool,
    rng: fastrand::Rng,
}

/// What a receiver finds.
enum Found {
    Deliveries(Vec<Incoming<MemoryToken>>),
    /// Nothing before this moment, unless the source changes.
    Nothing {
        due: Option<Instant>,
    },
    /// Nothing any more.
    Ended,
}

impl Topic {
    pub(super) fn new(name: Arc<str>, options: Arc<Options>) -> Self {
        let state = State {
            readers: Readers::new(options.replay),
            published: 0,
            ending: false,
            rng: fastrand::Rng::with_seed(options.seed),
        };
        Self { name, options, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Publishes a message and answers with its position.
    pub(super) fn publish(&self, message: Message) -> u64 {
        let now = Instant::now();
        let mut state = self.lock();
        state.published += 1;
        let position = state.published;
        let message = Stored::new(message, position, now, self.options.retention);
        state.readers.admit(Arc::new(message), now);
        drop(state);
        self.changed.notify_waiters();
        position
    }

    /// Makes receivers end once everything is settled.
    pub(super) fn end_when_settled(&self) {
        self.lock().ending = true;
        self.changed.notify_waiters();
    }

    /// Makes sure that the group gets what is published from now on.
    pub(super) fn join(&self, group: &Arc<str>) {
        self.lock().readers.join(group, Instant::now());
    }

    /// Waits until the group has something to deliver, and takes up to `free` of it.
    pub(super) async fn receive(
        &self,
        group: &Arc<str>,
        free: usize,
    ) -> Result<Vec<Incoming<MemoryToken>>, BrokerError> {
        loop {
            // Made before looking, so that no change between looking and waiting is missed.
            let changed = self.changed.notified();
            match self.take(group, free) {
                Found::Deliveries(deliveries) => return Ok(deliveries),
                Found::Ended => return Err(BrokerError::Ended),
                Found::Nothing { due: None } => changed.await,
                Found::Nothing { due: Some(due) } => {
                    let _ = timeout_at(due, changed).await;
                }
            }
        }
    }

    fn take(&self, group: &Arc<str>, free: usize) -> Found {
        let now = Instant::now();
        let mut state = self.lock();
        let State { readers, ending, rng, .. } = &mut *state;
        let group = readers.join(group, now);
        let expired_before = group.tally.expired;
        group.advance(now);
        let mut chance = Chance { rng, duplicates: self.options.duplicates, reorder: self.options.reorder };
        let mut deliveries = Vec::new();
        while deliveries.len() < free {
            let delivery = DELIVERIES.fetch_add(1, Ordering::Relaxed);
            let Some(entry) = group.take(delivery, now, self.options.lease, &mut chance) else { break };
            let received = entry.message.received(&self.name, entry.deliveries);
            deliveries.push(Incoming { received, token: MemoryToken(delivery), leased_at: now });
        }
        let last_expired = group.tally.expired > expired_before && group.is_settled();
        let found = if !deliveries.is_empty() {
            Found::Deliveries(deliveries)
        } else if *ending && group.is_settled() {
            Found::Ended
        } else {
            Found::Nothing { due: group.next_due() }
        };
        drop(state);
        if last_expired {
            self.changed.notify_waiters();
        }
        found
    }

    /// Settles deliveries of a group, and answers for each in order.
    pub(super) fn settle(&self, group: &Arc<str>, answers: Vec<(MemoryToken, Answer)>) -> Vec<Settled> {
        let now = Instant::now();
        let mut state = self.lock();
        let State { readers, rng, .. } = &mut *state;
        let group = readers.join(group, now);
        group.advance(now);
        let settled = answers
            .into_iter()
            .map(|(MemoryToken(delivery), answer)| {
                if answer == Answer::Acknowledge && self.loses_ack(group, delivery, rng) {
                    group.lose_ack(delivery, now);
                    return Settled::Lost;
                }
                if group.settle(delivery, answer, now) { Settled::Confirmed } else { Settled::Lost }
            })
            .collect();
        drop(state);
        self.changed.notify_waiters();
        settled
    }

    fn loses_ack(&self, group: &Group, delivery: u64, rng: &mut fastrand::Rng) -> bool {
        group
            .in_flight(delivery)
            .is_some_and(|entry| self.options.loses_ack(rng, || entry.message.received(&self.name, entry.deliveries)))
    }

    /// Extends leases of a group, and answers for each in order.
    pub(super) fn extend(&self, group: &Arc<str>, tokens: &[&MemoryToken]) -> Vec<Lease> {
        let now = Instant::now();
        let mut state = self.lock();
        let group = state.readers.join(group, now);
        group.advance(now);
        let extend = |MemoryToken(delivery): &&MemoryToken| {
            if group.extend(*delivery, now, self.options.lease) { Lease::Held } else { Lease::Lost }
        };
        tokens.iter().map(extend).collect()
    }

    pub(super) fn counts(&self, group: &Arc<str>) -> Counts {
        let now = Instant::now();
        let mut state = self.lock();
        let published = state.published;
        let group = state.readers.join(group, now);
        group.advance(now);
        Counts {
            published,
            waiting: group.waiting_count(),
            in_flight: group.in_flight_count(),
            deliveries: group.tally.deliveries,
            acknowledged: group.tally.acknowledged,
            lost_acks: group.tally.lost_acks,
            expired: group.tally.expired,
        }
    }

    /// Waits until the group has settled everything.
    pub(super) async fn settled(&self, group: &Arc<str>) {
        loop {
            let changed = self.changed.notified();
            let Counts { waiting, in_flight, .. } = self.counts(group);
            if waiting + in_flight == 0 {
                return;
            }
            changed.await;
        }
    }

    /// A panic can't leave the state half changed: what a user's code does under the lock, in `lose_ack_if`, comes before
    /// the change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
