//! The lease of a delivery: extended while its message is here, waiting or running, and its loss told to the handler.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::Lease;
use crate::erased::{AnySettler, Token};

/// When a delivery's lease runs out, for all who hold the delivery. A delivery without a lease never loses it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseWatch(Option<(Duration, Arc<Mutex<Instant>>)>);

impl LeaseWatch {
    fn new(lease: Duration, end: Instant) -> Self {
        Self(Some((lease, Arc::new(Mutex::new(end)))))
    }

    /// The lease's whole length.
    pub(crate) fn length(&self) -> Option<Duration> {
        self.0.as_ref().map(|(lease, _)| *lease)
    }

    pub(crate) fn lost(&self) -> bool {
        let end = |end: &Mutex<Instant>| *end.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.as_ref().is_some_and(|(_, current)| end(current) <= Instant::now())
    }

    fn set(&self, end: Instant) {
        if let Some((_, current)) = &self.0 {
            *current.lock().unwrap_or_else(PoisonError::into_inner) = end;
        }
    }
}

/// Extends the leases of one source's deliveries, all in one call, every third of the lease.
pub(crate) struct LeaseKeeper {
    settler: Arc<dyn AnySettler>,
    lease: Option<Duration>,
    held: Mutex<HashMap<u64, (Token, LeaseWatch)>>,
    next: AtomicU64,
}

/// One delivery's place with the keeper; dropped before the delivery is settled.
pub(crate) struct Held {
    keeper: Arc<LeaseKeeper>,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.held().remove(&self.id);
    }
}

impl LeaseKeeper {
    /// A keeper that extends until nobody holds it or a delivery of it; with `keep` false it only knows when leases end.
    pub(crate) fn start(settler: Arc<dyn AnySettler>, lease: Option<Duration>, keep: bool) -> Arc<Self> {
        let keeper = Arc::new(Self { settler, lease, held: Mutex::default(), next: AtomicU64::new(0) });
        if let (Some(lease), true) = (lease, keep) {
            tokio::spawn(extend_every_third(Arc::downgrade(&keeper), lease));
        }
        keeper
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, (Token, LeaseWatch)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a delivery whose lease began at `received_at` at the latest.
    pub(crate) fn hold(self: &Arc<Self>, token: Token, received_at: Instant) -> (Held, LeaseWatch) {
        let watch = self.lease.map(|lease| LeaseWatch::new(lease, received_at + lease)).unwrap_or_default();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.held().insert(id, (token, watch.clone()));
        (Held { keeper: Arc::clone(self), id }, watch)
    }

    async fn extend(&self, lease: Duration) {
        let (tokens, watches): (Vec<_>, Vec<_>) = self.held().values().cloned().unzip();
        if tokens.is_empty() {
            return;
        }
        // A reply that never comes must not keep the next extension back.
        let asked_at = Instant::now();
        let Ok(answers) = tokio::time::timeout(lease / 3, self.settler.extend(tokens)).await else {
            tracing::warn!("the broker didn't answer an extension of leases in time");
            return;
        };
        for (watch, answer) in watches.iter().zip(answers) {
            match answer {
                Lease::Held => watch.set(asked_at + lease),
                Lease::Lost => watch.set(asked_at),
            }
        }
    }
}

async fn extend_every_third(keeper: Weak<LeaseKeeper>, lease: Duration) {
    let mut ticks = tokio::time::interval(lease / 3);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(keeper) = keeper.upgrade() else { return };
        keeper.extend(lease).await;
    }
}
