//! Receiving: the server pushes, never more than there is room for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use inboxed_runtime::broker::{BrokerError, Capabilities, Incoming, Source, Wanted};
use inboxed_runtime::{Finding, Received};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::time::{Instant, sleep};

use super::connection::{Connection, answer, look, name};
use super::delay::Delays;
use super::error::RabbitMqError;
use super::facts::Facts;
use super::headers;
use super::moved::unpack;
use super::settler::{Delivery, RabbitMqSettler, RabbitMqToken, requeue};

/// Without a message for this long the server is asked whether the queue and the channel are there.
const QUIET: Duration = Duration::from_secs(10);

/// The receiving half of a source. Dropped, it gives back what the server has pushed and nobody has received.
#[derive(Debug)]
pub struct RabbitMqSource {
    name: Arc<str>,
    connection: Arc<Connection>,
    channel: Channel,
    consumer: Consumer,
    delays: Delays,
    facts: Facts,
    /// What the server has pushed and there was no room for, and since when it may have been here.
    waiting: VecDeque<(Instant, lapin::message::Delivery)>,
    /// When all that had come was taken in: the rest has come since.
    empty_at: Instant,
}

impl RabbitMqSource {
    pub(super) async fn open(
        connection: Connection,
        source: &str,
        delays: Delays,
        facts: Facts,
        wanted: &Wanted,
    ) -> Result<Self, RabbitMqError> {
        let channel = connection.channel().await?;
        let most = if facts.in_order { 1 } else { u16::try_from(wanted.in_flight).unwrap_or(u16::MAX) };
        answer("basic.qos", channel.basic_qos(most, BasicQosOptions::default())).await?;
        Ok(Self {
            name: Arc::from(source),
            connection: Arc::new(connection),
            consumer: consume(&channel, &delays.queue).await?,
            channel,
            delays,
            facts,
            waiting: VecDeque::new(),
            empty_at: Instant::now(),
        })
    }

    /// Takes in all that has come.
    fn gather(&mut self) -> Result<(), RabbitMqError> {
        while let Some(delivery) = self.consumer.next().now_or_never() {
            self.take(self.empty_at, delivery)?;
        }
        self.empty_at = Instant::now();
        Ok(())
    }

    fn take(
        &mut self,
        since: Instant,
        delivery: Option<lapin::Result<lapin::message::Delivery>>,
    ) -> Result<(), RabbitMqError> {
        let delivery = delivery.ok_or_else(|| self.gone())??;
        self.waiting.push_back((since, delivery));
        Ok(())
    }

    fn gone(&self) -> RabbitMqError {
        RabbitMqError::Ended(format!("queue `{}` was deleted, or its node went down", self.delays.queue))
    }

    /// Looks why nothing comes. A queue that was deleted and made again has no consumer, or the server has taken care of it.
    async fn look(&self) -> Result<(), RabbitMqError> {
        match look(&self.channel, &self.delays.queue).await {
            Ok(queue) if queue.consumer_count() > 0 => Ok(()),
            Ok(_) | Err(RabbitMqError::NoQueue(_)) => Err(self.gone()),
            Err(error) => Err(error),
        }
    }

    /// What waits here, as far as there is room, but for what has waited so long that its lease may end soon.
    fn ready(&mut self, free: usize) -> Vec<Incoming<RabbitMqToken>> {
        let mut batch = Vec::new();
        while batch.len() < free
            && let Some((since, delivery)) = self.waiting.pop_front()
        {
            if since.elapsed() > self.facts.lease / 3 {
                give_back(&delivery);
            } else {
                batch.push(self.incoming(delivery));
            }
        }
        batch
    }

    fn incoming(&self, delivery: lapin::message::Delivery) -> Incoming<RabbitMqToken> {
        let lapin::message::Delivery { acker, redelivered, properties, data, .. } = delivery;
        let original = unpack(properties, redelivered);
        let body = Bytes::from(data);
        let mut received = Received::new(Arc::clone(&self.name), body.clone());
        received.headers = headers::received(&original.properties);
        let seconds = original.properties.timestamp().map(Duration::from_secs);
        received.sent_at = seconds.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(seconds));
        received.delivery_count = original.deliveries;
        received.redelivered = original.redelivered;
        Incoming { received, token: RabbitMqToken(Arc::new(Delivery { acker, original, body })) }
    }

    async fn next(&mut self, free: usize) -> Result<Vec<Incoming<RabbitMqToken>>, RabbitMqError> {
        loop {
            self.gather()?;
            let batch = self.ready(free);
            if !batch.is_empty() {
                return Ok(batch);
            }
            tokio::select! {
                delivery = self.consumer.next() => {
                    // Nothing was here a moment ago, however long nothing came.
                    self.empty_at = Instant::now();
                    self.take(self.empty_at, delivery)?;
                }
                () = sleep(QUIET) => self.look().await?,
            }
        }
    }
}

impl Source for RabbitMqSource {
    type Settler = RabbitMqSettler;
    type Token = RabbitMqToken;

    fn capabilities(&self) -> Capabilities {
        self.facts.capabilities
    }

    fn findings(&self) -> Vec<Finding> {
        self.facts.findings.clone()
    }

    fn settler(&self) -> RabbitMqSettler {
        let (connection, channel) = (Arc::clone(&self.connection), self.channel.clone());
        RabbitMqSettler { connection, channel, delays: self.delays.clone(), in_order: self.facts.in_order }
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<RabbitMqToken>>, BrokerError> {
        let received = self.next(free).await;
        if received.is_err() {
            // What is open on this channel must not be settled on what the source is opened to again.
            self.connection.end().await;
        }
        Ok(received?)
    }
}

impl Drop for RabbitMqSource {
    fn drop(&mut self) {
        // First, or what is given back would be pushed here again.
        let cancel = BasicCancelOptions { nowait: true };
        let _ = self.channel.basic_cancel(self.consumer.tag(), cancel).now_or_never();
        // An error leaves nothing to give back.
        let _ = self.gather();
        for (_, delivery) in &self.waiting {
            give_back(delivery);
        }
    }
}

async fn consume(channel: &Channel, queue: &str) -> Result<Consumer, RabbitMqError> {
    let (queue, tag) = (name(queue)?, ShortString::default());
    let consumed = channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default());
    answer("basic.consume", consumed).await
}

/// Lets the server hand a message out again; the word is on its way when this returns.
fn give_back(delivery: &lapin::message::Delivery) {
    let _ = delivery.acker.nack(requeue()).now_or_never();
}
