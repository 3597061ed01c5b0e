//! Receiving: the server pushes, never more than there is room for.

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
    /// When nothing was waiting here: what is received now has come since.
    empty_at: Instant,
}

/// What is known of a queue.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) capabilities: Capabilities,
    pub(super) findings: Vec<Finding>,
    pub(super) lease: Duration,
    pub(super) in_order: bool,
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
        let (queue, tag) = (name(&delays.queue)?, ShortString::default());
        let consumed = channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default());
        let consumer = answer("basic.consume", consumed).await?;
        let (name, connection) = (Arc::from(source), Arc::new(connection));
        Ok(Self { name, connection, channel, consumer, delays, facts, empty_at: Instant::now() })
    }

    /// Takes in what came, unless it has waited here so long that its lease may end soon.
    fn take(
        &self,
        delivery: Option<lapin::Result<lapin::message::Delivery>>,
        batch: &mut Vec<Incoming<RabbitMqToken>>,
    ) -> Result<(), RabbitMqError> {
        let Some(delivery) = delivery else {
            return Err(RabbitMqError::Ended(format!(
                "queue `{}` was deleted, or its node went down",
                self.delays.queue
            )));
        };
        let delivery = delivery?;
        if self.empty_at.elapsed() > self.facts.lease / 3 {
            give_back(&delivery);
        } else {
            batch.push(self.incoming(delivery));
        }
        Ok(())
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

    /// What has come already, as far as there is room.
    fn take_ready(&mut self, free: usize, batch: &mut Vec<Incoming<RabbitMqToken>>) -> Result<(), RabbitMqError> {
        while batch.len() < free {
            let Some(delivery) = self.consumer.next().now_or_never() else {
                self.empty_at = Instant::now();
                return Ok(());
            };
            self.take(delivery, batch)?;
        }
        Ok(())
    }

    async fn next(&mut self, free: usize) -> Result<Vec<Incoming<RabbitMqToken>>, RabbitMqError> {
        loop {
            let mut batch = Vec::new();
            self.take_ready(free, &mut batch)?;
            if batch.is_empty() {
                tokio::select! {
                    delivery = self.consumer.next() => {
                        // Nothing was here a moment ago, however long nothing came.
                        self.empty_at = Instant::now();
                        self.take(delivery, &mut batch)?;
                        self.take_ready(free, &mut batch)?;
                    }
                    () = sleep(QUIET) => {
                        look(&self.channel, &self.delays.queue).await?;
                    }
                }
            }
            if !batch.is_empty() {
                return Ok(batch);
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
        while let Some(Some(delivery)) = self.consumer.next().now_or_never() {
            if let Ok(delivery) = delivery {
                give_back(&delivery);
            }
        }
    }
}

/// Lets the server hand a message out again; the word is on its way when this returns.
fn give_back(delivery: &lapin::message::Delivery) {
    let _ = delivery.acker.nack(requeue()).now_or_never();
}
