//! Settling deliveries. RabbitMQ confirms no acknowledgement and extends no lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use inboxed_runtime::broker::{Lease, Settled, Settlement, Settler};
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::{Acker, Channel};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::connection::{ANSWER, Connection};
use super::delay::Delays;
use super::moved::Original;
use super::source::Out;

/// How long a word about a delivery may take to be written. Later, it counts as lost.
const WRITTEN: Duration = Duration::from_secs(5);

/// How long a retry waits here at most, for a delay queue to confirm it, or if none takes it.
const HELD: Duration = Duration::from_mins(1);

/// The settling half of a source: as long as the connection that the deliveries came on.
#[derive(Clone, Debug)]
pub struct RabbitMqSettler {
    pub(super) connection: Arc<Connection>,
    pub(super) delays: Delays,
    /// Retries wait here, so that nothing overtakes them.
    pub(super) in_order: bool,
    pub(super) lease: Duration,
    /// Closed with the source.
    pub(super) receiving: watch::Receiver<()>,
}

/// What settles one delivery, once.
#[derive(Clone, Debug)]
pub struct RabbitMqToken(pub(super) Arc<Delivery>);

pub(super) struct Delivery {
    /// Closed with the last who holds it.
    pub(super) channel: Channel,
    /// Bound to its channel: of one that is closed it says nothing.
    pub(super) acker: Acker,
    /// When the server had handed it out at the latest.
    pub(super) leased_at: Instant,
    pub(super) original: Original,
    pub(super) body: Bytes,
    /// Says to the source that it is out.
    pub(super) _out: Arc<Out>,
}

/// Without the body and the headers, which aren't for logs.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("channel", &self.channel.id()).finish_non_exhaustive()
    }
}

impl RabbitMqSettler {
    async fn settle_one(&self, settlement: Settlement<RabbitMqToken>) -> Settled {
        match settlement {
            Settlement::Ack(proof) | Settlement::DeadLettered(proof) => self.acknowledge(&proof.into_token().0).await,
            Settlement::Release(RabbitMqToken(delivery)) => self.give_back(&delivery).await,
            Settlement::Retry(RabbitMqToken(delivery), delay) => self.retry(&delivery, delay).await,
        }
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Settled {
        self.said(delivery, delivery.acker.ack(BasicAckOptions::default())).await
    }

    async fn give_back(&self, delivery: &Delivery) -> Settled {
        self.said(delivery, delivery.acker.nack(requeue())).await
    }

    async fn retry(&self, delivery: &Delivery, delay: Duration) -> Settled {
        if self.connection.is_over() || !delivery.acker.usable() {
            return Settled::Lost;
        }
        if self.in_order {
            self.wait(delay.min(self.left(delivery))).await;
            return self.give_back(delivery).await;
        }
        // What is given back while its copy may be stored is there twice: so the word about it is waited for.
        let patience = self.left(delivery).min(HELD).max(ANSWER);
        match self.delays.put(&delivery.original, &delivery.body, delay, patience).await {
            Ok(()) => self.acknowledge(delivery).await,
            Err(error) => {
                tracing::warn!(queue = %self.delays.queue, %error, "a retry can't be delayed by the broker; it waits here");
                self.wait(delay.min(HELD).min(self.left(delivery))).await;
                self.give_back(delivery).await
            }
        }
    }

    /// How long the server lets a message wait here, with a tenth of the lease to say so. Later it would take back all that is
    /// out on the channel.
    fn left(&self, delivery: &Delivery) -> Duration {
        (self.lease / 10 * 9).saturating_sub(delivery.leased_at.elapsed())
    }

    /// Waits with a retry, while its source receives: a shutdown isn't kept waiting.
    async fn wait(&self, delay: Duration) {
        let _ = timeout(delay, self.receiving.clone().changed()).await;
    }

    async fn said(&self, delivery: &Delivery, word: impl Future<Output = lapin::Result<bool>>) -> Settled {
        if self.connection.is_over() || !delivery.channel.status().connected() {
            return Settled::Lost;
        }
        match timeout(WRITTEN, word).await {
            Ok(Ok(true)) => Settled::Sent,
            _ => Settled::Lost,
        }
    }
}

impl Settler for RabbitMqSettler {
    type Token = RabbitMqToken;

    async fn settle(&self, settlements: Vec<Settlement<RabbitMqToken>>) -> Vec<Settled> {
        join_all(settlements.into_iter().map(|settlement| self.settle_one(settlement))).await
    }

    async fn extend(&self, tokens: &[&RabbitMqToken]) -> Vec<Lease> {
        // The runtime extends no fixed lease; the server couldn't either.
        tokens.iter().map(|_| Lease::Lost).collect()
    }
}

pub(super) fn requeue() -> BasicNackOptions {
    BasicNackOptions { requeue: true, ..BasicNackOptions::default() }
}
