//! The same order without a broker: a webhook, a job, a test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::arrival::{Arrival, Settling};
use crate::broker::{Lease, Settled, Settlement};
use crate::consumer::Consumer;
use crate::erased::{AnySettler, Token};
use crate::lease::LeaseWatch;
use crate::message::{Headers, Received};
use crate::proof::How;
use crate::run_error::RunError;
use crate::store::Store;

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
        let pipeline = self.pipeline().await?;
        let Some(source) = pipeline.routes.sources().into_iter().find(|known| **known == *source) else {
            return Err(RunError::UnknownSource(source.to_owned()));
        };
        let received = Received { headers: headers.into(), ..Received::new(source, body) };
        let (answer, answered) = oneshot::channel();
        let settling = Settling {
            source: Arc::clone(&received.source),
            token: Token::new(()),
            settler: Arc::new(Caller(Mutex::new(Some(answer)))),
            lease: LeaseWatch::default(),
            held: None,
            place: None,
        };
        let arrival = Arrival { received: Arc::new(received), settling, redriven: None, end: CancellationToken::new() };
        let pipeline = Arc::clone(pipeline);
        tokio::spawn(async move { pipeline.handle(vec![arrival]).await });
        answered.await.map_err(|_| RunError::NoAnswer)
    }
}

/// The caller that waits for the outcome, in a broker's place.
struct Caller(Mutex<Option<oneshot::Sender<Outcome>>>);

impl AnySettler for Caller {
    fn settle(&self, settlements: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>> {
        let answers = settlements.into_iter().map(|settlement| {
            let outcome = match settlement {
                Settlement::Ack(proof) => match proof.how() {
                    How::Effect => Outcome::Done,
                    How::Duplicate { .. } => Outcome::Duplicate,
                    How::DeadLettered => Outcome::DeadLettered,
                    How::Skipped => Outcome::Skipped,
                },
                Settlement::DeadLettered(_) => Outcome::DeadLettered,
                Settlement::Retry(_, delay) => Outcome::Retry(delay),
                Settlement::Release(_) => Outcome::Retry(Duration::from_secs(1)),
            };
            let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            match caller.map(|caller| caller.send(outcome)) {
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
