//! The lease of a delivery: extended while its message is here, waiting or running, and its loss told to the handler.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::Lease;
use crate::erased::{AnySettler, Token};

/// The shortest time between two extensions: tokio knows no interval of zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// A longer lease is without end: no clock need count so far.
const LONGEST: Duration = Duration::from_hours(365 * 24);

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
        let lease = lease.map(|lease| lease.min(LONGEST));
        let keeper = Arc::new(Self { settler, lease, held: Mutex::default(), next: AtomicU64::new(0) });
        if let (Some(lease), true) = (lease, keep) {
            tokio::spawn(extend_every_third(Arc::downgrade(&keeper), lease));
        }
        keeper
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, (Token, LeaseWatch)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a delivery whose lease began at `leased_at` at the latest.
    pub(crate) fn hold(self: &Arc<Self>, token: Token, leased_at: Instant) -> (Held, LeaseWatch) {
        let watch = self.lease.map(|lease| LeaseWatch::new(lease, leased_at + lease)).unwrap_or_default();
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
                Lease::Unknown => {}
            }
        }
    }
}

async fn extend_every_third(keeper: Weak<LeaseKeeper>, lease: Duration) {
    let mut ticks = tokio::time::interval((lease / 3).max(SHORTEST));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(keeper) = keeper.upgrade() else { return };
        keeper.extend(lease).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::broker::{Settled, Settlement};

    const LEASE: Duration = Duration::from_secs(30);

    /// A broker that counts extensions, and answers what it is told, or never.
    #[derive(Default)]
    struct Broker {
        extended: AtomicU32,
        answers: Mutex<Option<Lease>>,
    }

    impl Broker {
        fn answering(answer: Option<Lease>) -> Arc<Self> {
            Arc::new(Self { answers: Mutex::new(answer), ..Self::default() })
        }

        fn extended(&self) -> u32 {
            self.extended.load(Ordering::SeqCst)
        }
    }

    impl AnySettler for Broker {
        fn settle(&self, _: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>> {
            Box::pin(std::future::ready(Vec::new()))
        }

        fn extend(&self, tokens: Vec<Token>) -> BoxFuture<'_, Vec<Lease>> {
            self.extended.fetch_add(u32::try_from(tokens.len()).unwrap(), Ordering::SeqCst);
            let answer = *self.answers.lock().unwrap();
            Box::pin(async move {
                match answer {
                    Some(answer) => vec![answer; tokens.len()],
                    None => std::future::pending().await,
                }
            })
        }
    }

    fn keeper(broker: &Arc<Broker>, keep: bool) -> Arc<LeaseKeeper> {
        LeaseKeeper::start(Arc::clone(broker) as Arc<dyn AnySettler>, Some(LEASE), keep)
    }

    #[tokio::test(start_paused = true)]
    async fn held_delivery_is_extended_every_third_of_its_lease() {
        let broker = Broker::answering(Some(Lease::Held));
        let keeper = keeper(&broker, true);
        let (_held, watch) = keeper.hold(Token::new(1), Instant::now());
        tokio::time::sleep(LEASE * 3).await;
        assert!((8..=10).contains(&broker.extended()), "{}", broker.extended());
        assert!(!watch.lost());
    }

    #[tokio::test(start_paused = true)]
    async fn settled_delivery_is_extended_no_more() {
        let broker = Broker::answering(Some(Lease::Held));
        let keeper = keeper(&broker, true);
        let (held, _) = keeper.hold(Token::new(1), Instant::now());
        drop(held);
        tokio::time::sleep(LEASE).await;
        assert_eq!(broker.extended(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_that_the_broker_took_back_is_lost_at_once() {
        let broker = Broker::answering(Some(Lease::Lost));
        let keeper = keeper(&broker, true);
        let (_held, watch) = keeper.hold(Token::new(1), Instant::now());
        tokio::time::sleep(LEASE / 2).await;
        assert!(watch.lost());
    }

    #[tokio::test(start_paused = true)]
    async fn broker_that_does_not_answer_is_asked_again_and_the_lease_runs_out() {
        let broker = Broker::answering(None);
        let keeper = keeper(&broker, true);
        let (_held, watch) = keeper.hold(Token::new(1), Instant::now());
        tokio::time::sleep(LEASE * 9 / 10).await;
        assert!(broker.extended() >= 2, "{}", broker.extended());
        assert!(!watch.lost());
        tokio::time::sleep(LEASE / 5).await;
        assert!(watch.lost());
    }

    #[tokio::test(start_paused = true)]
    async fn extension_that_nobody_heard_leaves_the_lease_as_it_is() {
        let broker = Broker::answering(Some(Lease::Unknown));
        let keeper = keeper(&broker, true);
        let (_held, watch) = keeper.hold(Token::new(1), Instant::now());
        tokio::time::sleep(LEASE * 9 / 10).await;
        assert!(!watch.lost());
        tokio::time::sleep(LEASE / 5).await;
        assert!(watch.lost());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_runs_out_by_the_time_it_began_if_nobody_keeps_it() {
        let broker = Broker::answering(Some(Lease::Held));
        let keeper = keeper(&broker, false);
        let began = Instant::now();
        tokio::time::sleep(LEASE / 2).await;
        let (_held, watch) = keeper.hold(Token::new(1), began);
        assert!(!watch.lost());
        tokio::time::sleep(LEASE / 2).await;
        assert!(watch.lost());
        assert_eq!(broker.extended(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn keeper_ends_with_the_last_who_holds_it() {
        let broker = Broker::answering(Some(Lease::Held));
        let keeper = keeper(&broker, true);
        let (held, _) = keeper.hold(Token::new(1), Instant::now());
        drop(keeper);
        tokio::time::sleep(LEASE).await;
        assert!(broker.extended() >= 2, "a delivery holds it");
        drop(held);
        tokio::time::sleep(LEASE).await;
        assert_eq!(Arc::strong_count(&broker), 1, "its task has ended");
    }
}
