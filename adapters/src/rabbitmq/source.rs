//! Receiving: the server pushes, never more than there is room for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use inboxed_runtime::broker::{BrokerError, Capabilities, Incoming, Source, Wanted};
use inboxed_runtime::{Finding, Received};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::watch;
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

/// After so many such times the queue is consumed anew, over another channel: of one that was deleted and made again the server
/// may keep the consumer, and never deliver to it (seen on 3.10 and 4.0).
const RENEW_AFTER: u32 = 3;

/// The receiving half of a source. Dropped, it gives back what the server has pushed and nobody has received.
#[derive(Debug)]
pub struct RabbitMqSource {
    name: Arc<str>,
    connection: Arc<Connection>,
    channel: Channel,
    consumer: Consumer,
    /// How many messages may be unacknowledged.
    most: u16,
    delays: Delays,
    facts: Facts,
    /// What the server has pushed and there was no room for, and since when it may have been here.
    waiting: VecDeque<(Instant, lapin::message::Delivery)>,
    /// When all that had come was taken in: the rest has come since.
    empty_at: Instant,
    outstanding: Arc<Out>,
    /// Tells the settlers that this is dropped.
    receiving: watch::Sender<()>,
    /// How often in a row nothing came.
    quiet: u32,
}

/// Held by the source, and by each delivery that it has handed on.
pub(super) struct Out {
    /// Of a queue that keeps its order: closed with the last who holds it. A consumer that is cancelled while a message of its
    /// own is out leaves the queue to the next consumer, which would overtake that message; the end of a channel gives the
    /// message back and the queue over in one.
    in_order: Option<(Channel, Consumer)>,
}

impl Out {
    fn new(channel: &Channel, consumer: &Consumer, in_order: bool) -> Self {
        Self { in_order: in_order.then(|| (channel.clone(), consumer.clone())) }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Some((channel, _)) = &self.in_order {
            // The word is on its way when this returns.
            let _ = channel.close(200, ShortString::default()).now_or_never();
        }
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").finish_non_exhaustive()
    }
}

impl RabbitMqSource {
    pub(super) async fn open(
        connection: Connection,
        source: &str,
        delays: Delays,
        facts: Facts,
        wanted: &Wanted,
    ) -> Result<Self, RabbitMqError> {
        let most = if facts.in_order { 1 } else { u16::try_from(wanted.in_flight).unwrap_or(u16::MAX) };
        let (channel, consumer) = consume(&connection, &delays.queue, most).await?;
        Ok(Self {
            name: Arc::from(source),
            connection: Arc::new(connection),
            most,
            delays,
            waiting: VecDeque::new(),
            empty_at: Instant::now(),
            outstanding: Arc::new(Out::new(&channel, &consumer, facts.in_order)),
            receiving: watch::Sender::new(()),
            quiet: 0,
            channel,
            consumer,
            facts,
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

    /// Looks why nothing comes.
    async fn look(&mut self) -> Result<(), RabbitMqError> {
        self.quiet += 1;
        match look(&self.channel, &self.delays.queue).await {
            Ok(queue) if queue.consumer_count() > 0 => {}
            Ok(_) | Err(RabbitMqError::NoQueue(_)) => return Err(self.gone()),
            Err(error) => return Err(error),
        }
        // What is out doesn't count for a new consumer, and there would be more of it than there may be.
        let none_is_out = Arc::strong_count(&self.outstanding) == 1 && self.waiting.is_empty();
        if self.quiet.is_multiple_of(RENEW_AFTER) && none_is_out {
            if self.connection.is_worn() {
                return Err(RabbitMqError::Ended("it is replaced, since it has used up its channels".to_owned()));
            }
            let (channel, consumer) = consume(&self.connection, &self.delays.queue, self.most).await?;
            self.leave();
            self.outstanding = Arc::new(Out::new(&channel, &consumer, self.facts.in_order));
            (self.channel, self.consumer) = (channel, consumer);
        }
        Ok(())
    }

    /// Consumes no more, and gives back what was pushed and not handed on.
    fn leave(&mut self) {
        if self.facts.in_order {
            // The channel's end does it, when nothing is out any more.
            return self.waiting.clear();
        }
        // First, or what is given back would be pushed here again.
        let cancel = BasicCancelOptions { nowait: true };
        let _ = self.channel.basic_cancel(self.consumer.tag(), cancel).now_or_never();
        // An error leaves nothing to give back.
        let _ = self.gather();
        for (_, delivery) in self.waiting.drain(..) {
            give_back(&delivery);
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
                batch.push(self.incoming(since, delivery));
            }
        }
        batch
    }

    fn incoming(&self, leased_at: Instant, delivery: lapin::message::Delivery) -> Incoming<RabbitMqToken> {
        let lapin::message::Delivery { acker, redelivered, properties, data, .. } = delivery;
        let original = unpack(properties, redelivered);
        let body = Bytes::from(data);
        let mut received = Received::new(Arc::clone(&self.name), body.clone());
        received.headers = headers::received(&original.properties);
        let seconds = original.properties.timestamp().map(Duration::from_secs);
        received.sent_at = seconds.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(seconds));
        received.delivery_count = original.deliveries;
        received.redelivered = original.redelivered;
        let (channel, out) = (self.channel.clone(), Arc::clone(&self.outstanding));
        let token = RabbitMqToken(Arc::new(Delivery { channel, acker, leased_at, original, body, _out: out }));
        Incoming { received, token, leased_at }
    }

    async fn next(&mut self, free: usize) -> Result<Vec<Incoming<RabbitMqToken>>, RabbitMqError> {
        loop {
            self.gather()?;
            let batch = self.ready(free);
            if !batch.is_empty() {
                self.quiet = 0;
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
        let (connection, delays) = (Arc::clone(&self.connection), self.delays.clone());
        let Facts { in_order, lease, .. } = self.facts;
        RabbitMqSettler { connection, delays, in_order, lease, receiving: self.receiving.subscribe() }
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
        self.leave();
    }
}

/// Consumes a queue over a channel of its own.
async fn consume(connection: &Connection, queue: &str, most: u16) -> Result<(Channel, Consumer), RabbitMqError> {
    let channel = connection.channel().await?;
    answer("basic.qos", channel.basic_qos(most, BasicQosOptions::default())).await?;
    let (queue, tag) = (name(queue)?, ShortString::default());
    let options = BasicConsumeOptions::default();
    let consumer = answer("basic.consume", channel.basic_consume(queue, tag, options, FieldTable::default())).await?;
    Ok((channel, consumer))
}

/// Lets the server hand a message out again; the word is on its way when this returns.
fn give_back(delivery: &lapin::message::Delivery) {
    let _ = delivery.acker.nack(requeue()).now_or_never();
}
