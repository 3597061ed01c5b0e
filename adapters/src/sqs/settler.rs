//! Settling deliveries, and keeping their leases.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use inboxed_runtime::broker::{Lease, Settled, Settlement, Settler};
use tokio::time::Instant;

use super::batch::{Batches, Said};
use super::queue::{LONGEST_LEASE, whole_seconds};
use super::turns::Turn;

/// How long we keep a message from the queue's other consumers at most: the service began to count before we did.
const LONGEST: Duration = LONGEST_LEASE.saturating_sub(Duration::from_secs(30));

/// The settling half of a source.
#[derive(Clone, Debug)]
pub struct SqsSettler;

/// What settles one delivery, once.
#[derive(Clone, Debug)]
pub struct SqsToken(Arc<Delivery>);

#[derive(Debug)]
struct Delivery {
    /// What the service knows this delivery by, and no later one.
    handle: String,
    batches: Batches,
    received_at: Instant,
    lease: Duration,
    /// Held while something is said about the delivery, so that an extension can't take the delay of a retry back. Whether
    /// it is settled.
    settled: tokio::sync::Mutex<bool>,
    lease_ends: Mutex<Instant>,
    /// In a FIFO queue, while the delivery is out.
    turn: Mutex<Option<Turn>>,
}

impl SqsToken {
    pub(super) fn new(handle: String, batches: Batches, received_at: Instant, lease: Duration) -> Self {
        Self(Arc::new(Delivery {
            handle,
            batches,
            received_at,
            lease,
            settled: tokio::sync::Mutex::new(false),
            lease_ends: Mutex::new(received_at + lease),
            turn: Mutex::new(None),
        }))
    }

    /// It is this delivery's turn in its group.
    pub(super) fn take_turn(&self, turn: Turn) {
        *self.0.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }

    /// Gives the delivery back, which was never handed on.
    pub(super) fn give_back(&self) {
        if !self.0.is_over() {
            self.0.batches.give_back(&self.0.handle);
        }
    }

    /// Since when the lease runs; it may have been extended.
    pub(super) fn leased_at(&self) -> Instant {
        self.0.lease_ends() - self.0.lease
    }
}

impl Delivery {
    fn lease_ends(&self) -> Instant {
        *self.lease_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another consumer may have the message by now.
    fn is_over(&self) -> bool {
        self.lease_ends() <= Instant::now()
    }

    fn turn(&self) -> Option<Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn behind(&self) -> Vec<SqsToken> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Turn::behind).unwrap_or_default()
    }

    /// How many seconds of invisibility the time is; whole ones, and no more than the service gives.
    fn seconds(&self, time: Duration) -> i32 {
        let left = LONGEST.saturating_sub(self.received_at.elapsed()).as_secs();
        i32::try_from(whole_seconds(time).min(left)).unwrap_or(i32::MAX)
    }

    /// Its effect is committed, so that deleting it is right even when its lease is over.
    async fn delete(&self) -> Settled {
        let mut settled = self.settled.lock().await;
        if std::mem::replace(&mut *settled, true) {
            return Settled::Lost;
        }
        let (turn, late) = (self.turn(), self.is_over());
        match self.batches.delete(&self.handle).await {
            Said::Taken => {
                if let Some(turn) = turn {
                    turn.done();
                }
                // The service answers an old handle like the latest, and may leave the message where it is.
                if late { Settled::Sent } else { Settled::Confirmed }
            }
            Said::Gone | Said::Unheard => Settled::Lost,
        }
    }

    async fn hide(&self, time: Duration) -> Settled {
        let mut settled = self.settled.lock().await;
        if std::mem::replace(&mut *settled, true) {
            return Settled::Lost;
        }
        // What comes behind is given back first: it must not be handed out alone.
        drop(self.turn());
        // A late word might be taken for another consumer's about his delivery.
        if self.is_over() {
            return Settled::Lost;
        }
        match self.batches.hide(&self.handle, self.seconds(time)).await {
            Said::Taken => Settled::Confirmed,
            Said::Gone | Said::Unheard => Settled::Lost,
        }
    }

    async fn extend(&self) -> Lease {
        let settled = self.settled.lock().await;
        let asked_at = Instant::now();
        let seconds = self.seconds(self.lease);
        if *settled || self.is_over() {
            return Lease::Lost;
        }
        // The last one that the service gives may have begun already.
        if Duration::from_secs(seconds.unsigned_abs().into()) < self.lease {
            return Lease::Unknown;
        }
        match self.batches.hide(&self.handle, seconds).await {
            Said::Taken => {
                *self.lease_ends.lock().unwrap_or_else(PoisonError::into_inner) = asked_at + self.lease;
                Lease::Held
            }
            Said::Gone => Lease::Lost,
            Said::Unheard => Lease::Unknown,
        }
    }
}

async fn settle(settlement: Settlement<SqsToken>) -> Settled {
    match settlement {
        Settlement::Ack(proof) | Settlement::DeadLettered(proof) => proof.into_token().0.delete().await,
        Settlement::Retry(SqsToken(delivery), delay) => delivery.hide(delay).await,
        Settlement::Release(SqsToken(delivery)) => delivery.hide(Duration::ZERO).await,
    }
}

async fn extend(token: &SqsToken) -> Lease {
    // What waits behind it here is as much out as it is.
    let behind = token.0.behind();
    tokio::join!(extend_one(token), join_all(behind.iter().map(extend_one))).0
}

/// In a task of its own: what was said is heard, though nobody waits for the answer any more, and must be heard before the
/// delivery is settled.
async fn extend_one(SqsToken(delivery): &SqsToken) -> Lease {
    let delivery = Arc::clone(delivery);
    tokio::spawn(async move { delivery.extend().await }).await.unwrap_or(Lease::Unknown)
}

impl Settler for SqsSettler {
    type Token = SqsToken;

    async fn settle(&self, settlements: Vec<Settlement<SqsToken>>) -> Vec<Settled> {
        join_all(settlements.into_iter().map(settle)).await
    }

    async fn extend(&self, tokens: &[&SqsToken]) -> Vec<Lease> {
        join_all(tokens.iter().map(|token| extend(token))).await
    }
}
