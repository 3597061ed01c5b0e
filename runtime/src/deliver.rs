//! The same order without a broker: a webhook, a job, a test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::arrival::{Arrival, Settling};
use crate::broker::{Lease, Settled, Settlement};
use crate::consumer::Consumer;
use crate::erased::{AnySettler, Token};
use crate::lease::LeaseWatch;
use crate::message::{Headers, Received};
use crate::proof::How;
use crate::run_error::RunError;
use crate::shutdown::drain;
use crate::store::{Reason, Store};

/// What became of a delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The effect is committed.
    Done,
    /// It was committed before.
    Duplicate,
    /// Nothing is committed; deliver it again after this delay.
    Retry(Duration),
    /// It is kept as a dead letter in the inbox's database; don't deliver it again.
    DeadLettered,
    /// No handler takes its type, and the consumer was told to [skip](crate::UnknownType::Skip) such messages.
    Skipped,
}

/// What became of a delivered message, and of a dead letter why it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// What became of it.
    pub outcome: Outcome,
    /// Why it is a dead letter, if it is one.
    pub reason: Option<Reason>,
}

impl<Db: Store, S> Consumer<Db, S> {
    /// Handles one message in the one order, and answers when its outcome is durable.
    ///
    /// A caller that goes away meanwhile doesn't end the work: it runs in a task of its own.
    ///
    /// ```
    /// # extern crate inboxed_runtime as inboxed;
    /// # use inboxed::{Consumer, Outcome, store::Store};
    /// /// A webhook: the sender tries again unless it is answered by 200.
    /// async fn webhook<Db: Store>(app: &Consumer<Db>, body: String) -> u16 {
    ///     match app.deliver("orders", body, ()).await {
    ///         Ok(Outcome::Retry(_)) | Err(_) => 503,
    ///         Ok(_) => 200,
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// If the consumer can't start, or no handler is registered for the source.
    pub async fn deliver(
        &self,
        source: &str,
        body: impl Into<Bytes>,
        headers: impl Into<Headers>,
    ) -> Result<Outcome, RunError> {
        let received = Received { headers: headers.into(), ..Received::new(source, body) };
        Ok(self.deliver_received(received).await?.outcome)
    }

    /// The same for a message whose sender says more of it, and with an answer that says more.
    ///
    /// # Errors
    /// If the consumer can't start, or no handler is registered for the source.
    pub async fn deliver_received(&self, received: Received) -> Result<Delivered, RunError> {
        let pipeline = Arc::clone(self.pipeline().await?);
        if !self.takes(&received.source) {
            return Err(RunError::UnknownSource(received.source.to_string()));
        }
        let (answer, answered) = oneshot::channel();
        let settling = Settling {
            source: Arc::clone(&received.source),
            token: Token::new(()),
            settler: Arc::new(Caller(Mutex::new(Some(answer)))),
            lease: LeaseWatch::default(),
            held: None,
            place: None,
        };
        let end = self.deliveries.end();
        let arrival = Arrival { received: Arc::new(received), settling, redriven: None, end };
        self.deliveries.tasks.spawn(async move { pipeline.handle(vec![arrival]).await }.in_current_span());
        answered.await.map_err(|_| RunError::NoAnswer)
    }

    /// Whether a handler is registered for the source.
    pub fn takes(&self, source: &str) -> bool {
        self.handlers.iter().any(|(route, _)| *route.source == *source)
    }
}

/// The messages that are being delivered without a broker, for a shutdown to wait for.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    tasks: TaskTracker,
    /// Ends those that a grace period has run out for.
    end: Mutex<CancellationToken>,
}

impl Deliveries {
    fn end(&self) -> CancellationToken {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets them finish; after the grace period they are rolled back. Later ones are delivered as before.
    pub(crate) async fn drain(&self, grace: Duration) {
        let end = self.end();
        drain(&self.tasks, &end, grace).await;
        self.tasks.reopen();
        if end.is_cancelled() {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = CancellationToken::new();
        }
    }
}

/// The caller that waits for the outcome, in a broker's place.
struct Caller(Mutex<Option<oneshot::Sender<Delivered>>>);

impl AnySettler for Caller {
    fn settle(&self, settlements: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>> {
        let answers = settlements.into_iter().map(|settlement| {
            let mut reason = None;
            let outcome = match settlement {
                Settlement::Ack(proof) | Settlement::DeadLettered(proof) => match proof.how() {
                    How::Effect => Outcome::Done,
                    How::Duplicate { .. } => Outcome::Duplicate,
                    How::DeadLettered(why) => {
                        reason = Some(why);
                        Outcome::DeadLettered
                    }
                    How::Skipped => Outcome::Skipped,
                },
                Settlement::Retry(_, delay) => Outcome::Retry(delay),
                Settlement::Release(_) => Outcome::Retry(Duration::from_secs(1)),
            };
            let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            match caller.map(|caller| caller.send(Delivered { outcome, reason })) {
                Some(Ok(())) => Settled::Confirmed,
                _ => Settled::Lost,
            }
        });
        let answers = answers.collect();
        Box::pin(std::future::ready(answers))
    }

    fn extend(&self, tokens: Vec<Token>) -> BoxFuture<'_, Vec<Lease>> {
        Box::pin(std::future::ready(vec![Lease::Held; tokens.len()]))
    }
}
