//! Dead letters that an operator sends back: the table is itself a source, and nothing is published.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arrival::{Arrival, Settling};
use crate::broker::{Lease, Settled, Settlement};
use crate::consumer::Consumer;
use crate::erased::{AnySettler, Token};
use crate::error::Error;
use crate::lease::LeaseWatch;
use crate::pipeline::Pipeline;
use crate::run_error::RunError;
use crate::store::{Inbox, LetterId, StartError, Store};

/// How many letters are taken at once.
const BATCH: u32 = 16;

/// How long a taken letter stays with this process. One that takes longer may be taken by another too, whose claim then
/// waits for this one's outcome.
const LEASE: Duration = Duration::from_mins(5);

impl<Db: Store, S> Consumer<Db, S> {
    /// Handles the dead letters that were sent back by `inbox.dead_letters().redrive(…)`, and answers how many it took.
    /// A running consumer does so by itself; this is for one that only delivers.
    ///
    /// # Errors
    /// If the consumer can't start or the database doesn't answer.
    pub async fn redrive(&self) -> Result<usize, RunError> {
        let pipeline = self.pipeline().await?;
        let (tasks, never) = (TaskTracker::new(), CancellationToken::new());
        pipeline.redrive(&tasks, &never, &never).await.map_err(|error| StartError::Database(error).into())
    }
}

impl<Db: Store> Pipeline<Db> {
    /// Takes the letters that were sent back and handles each in the one order, in a task that nothing drops.
    /// When `stop` asks for it, the rest is given back.
    pub(crate) async fn redrive(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        end: &CancellationToken,
    ) -> Result<usize, Error> {
        let consumers = self.routes.0.iter().map(|route| route.id).chain([self.unrouted]).collect::<Vec<_>>();
        let letters = self.inbox.take_redriven(&consumers, BATCH, LEASE).await?;
        let count = letters.len();
        for letter in letters {
            if stop.is_cancelled() {
                self.inbox.postpone_letter(letter.id, Duration::ZERO).await?;
                continue;
            }
            let settling = Settling {
                source: Arc::clone(&letter.received.source),
                token: Token::new(letter.id),
                settler: Arc::new(Table(self.inbox.clone(), letter.id)),
                lease: LeaseWatch::default(),
                held: None,
                place: None,
            };
            let received = Arc::new(letter.received.clone());
            let arrival = Arrival { received, settling, redriven: Some(letter), end: end.clone() };
            let pipeline = Arc::clone(self);
            // A task that ends without an answer leaves the letter to its lease.
            let _ = tasks.spawn(async move { pipeline.handle(vec![arrival]).await }).await;
        }
        Ok(count)
    }
}

/// The table of dead letters, in a broker's place, for one letter.
struct Table<Db: Store>(Inbox<Db>, LetterId);

impl<Db: Store> AnySettler for Table<Db> {
    fn settle(&self, settlements: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>> {
        let Self(inbox, id) = self;
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(settlements.len());
            for settlement in settlements {
                let settled = match settlement {
                    // A success has closed it in its own transaction; a duplicate closes it here.
                    Settlement::Ack(_) => inbox.close_letter(*id).await,
                    Settlement::DeadLettered(_) => Ok(()),
                    Settlement::Retry(_, delay) => inbox.postpone_letter(*id, delay).await,
                    Settlement::Release(_) => inbox.postpone_letter(*id, Duration::ZERO).await,
                };
                outcomes.push(settled.map_or(Settled::Lost, |()| Settled::Confirmed));
            }
            outcomes
        })
    }

    fn extend(&self, tokens: Vec<Token>) -> BoxFuture<'_, Vec<Lease>> {
        Box::pin(std::future::ready(vec![Lease::Held; tokens.len()]))
    }
}
