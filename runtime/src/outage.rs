//! An outage of the store: fetching stands still and health is red until the database answers again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Class, Error};
use crate::health::Health;
use crate::store::{ConsumerId, Inbox, Store};

/// The longest wait between two looks at a database that is down.
const SLOWEST: Duration = Duration::from_secs(2);

/// How long a database may take to answer a look.
const ANSWER: Duration = Duration::from_secs(5);

pub(crate) struct Outage<Db: Store> {
    inbox: Inbox<Db>,
    /// Whose row is written to see whether the database takes writes.
    consumer: ConsumerId,
    health: Health,
    looking: Arc<AtomicBool>,
    /// Ends the looking with the consumer whose health it is.
    end: CancellationToken,
}

impl<Db: Store> Drop for Outage<Db> {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl<Db: Store> Outage<Db> {
    pub(crate) fn new(inbox: Inbox<Db>, consumer: ConsumerId, health: Health) -> Self {
        Self { inbox, consumer, health, looking: Arc::default(), end: CancellationToken::new() }
    }

    /// Looks whether the database answers and takes writes, and if it doesn't, keeps health red until it does. A lock that
    /// was waited for in vain is no outage.
    pub(crate) fn look(&self, error: &Error) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (inbox, health, looking) = (self.inbox.clone(), self.health.clone(), Arc::clone(&self.looking));
        let (consumer, reason) = (self.consumer, error.chain());
        let look = Look { health: health.clone(), looking };
        tokio::spawn(self.end.clone().run_until_cancelled_owned(async move {
            let _look = look;
            let mut wait = Duration::from_millis(20);
            while !answers(&inbox, consumer).await {
                if health.store_down(reason.clone()) {
                    tracing::error!(error = %reason, "the store is out of reach; fetching stands still");
                }
                tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                wait = (wait * 2).min(SLOWEST);
            }
            if health.store_up() {
                tracing::info!("the store answers again");
            }
        }));
    }
}

/// A look that goes on. If its runtime ends first, nobody would turn the health green again, so that a consumer on
/// another runtime would wait for ever: the next error looks anew.
struct Look {
    health: Health,
    looking: Arc<AtomicBool>,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.health.store_up();
        self.looking.store(false, Ordering::Release);
    }
}

/// A database that is read-only or full answers too, but it can't take a claim. A write that only waits is behind a lock.
async fn answers<Db: Store>(inbox: &Inbox<Db>, consumer: ConsumerId) -> bool {
    let reads = matches!(tokio::time::timeout(ANSWER, inbox.now()).await, Ok(Ok(_)));
    let refuses = |written: Result<(), Error>| written.is_err_and(|error| error.class() != Class::Contention);
    reads && !tokio::time::timeout(ANSWER, inbox.note_seen(consumer)).await.is_ok_and(refuses)
}
