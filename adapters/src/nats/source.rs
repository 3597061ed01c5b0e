//! Pulling: never more than there is room for, so that no message grows old here unseen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::Message;
use async_nats::jetstream::stream::StorageType;
use inboxed_runtime::broker::{BrokerError, Capabilities, Incoming, Source, Wanted};
use inboxed_runtime::{Finding, Received};
use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::Connection;
use super::durable::Durable;
use super::error::NatsError;
use super::headers;
use super::place::Place;
use super::pulls::{Delivered, Pulls};
use super::settler::{NatsSettler, NatsToken};
use super::unreadable::{Search, Suspicion};

/// How long a pull waits at the server for messages.
const PULL: Duration = Duration::from_secs(30);

/// How often the server says meanwhile that it is there.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Without a word for this long the pull is taken for lost, and the source is opened again.
const SILENCE: Duration = Duration::from_secs(8);

/// How long the server may take to say why nothing comes.
const LOOK: Duration = Duration::from_secs(2);

/// The receiving half of a source. Dropped, it gives back what it has fetched and not handed on.
#[derive(Debug)]
pub struct NatsSource {
    server: Connection,
    name: Arc<str>,
    stream: String,
    durable: String,
    limits: Durable,
    capabilities: Capabilities,
    wanted: Wanted,
    pulls: Pulls,
    /// What comes first: messages that don't come by a pull.
    unreadable: VecDeque<Incoming<NatsToken>>,
    suspicion: Suspicion,
    opened_at: Instant,
    /// The pull that waits at the server.
    open: Option<Pull>,
    count: u64,
    /// Whether the cap may be reached: something was handed out since the server said that nothing is.
    suspicious: bool,
    stalled: bool,
}

#[derive(Debug)]
struct Pull {
    /// Where the server answers it.
    inbox: String,
    /// How many messages may still come of it.
    left: usize,
}

/// What the server said about a pull.
enum Said {
    Heartbeat,
    Nothing,
}

impl NatsSource {
    pub(super) async fn open(
        server: Connection,
        name: &str,
        place: &Place,
        limits: Durable,
        wanted: &Wanted,
        suspicion: Suspicion,
    ) -> Result<Self, NatsError> {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = limits.cap == Some(1);
        capabilities.groups = true;
        capabilities.persistent = place.stream.storage == StorageType::File;
        capabilities.lease = Some(limits.lease);
        capabilities.delivery_limit = limits.limit;
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.replay = true;
        capabilities.position = true;
        capabilities.retention = Some(place.stream.max_age).filter(|age| !age.is_zero());
        let source = Arc::from(name);
        let search = Search { server: &server, source: &source, place, lease: limits.lease, suspicion: &suspicion };
        Ok(Self {
            unreadable: search.find().await,
            suspicion,
            opened_at: Instant::now(),
            pulls: Pulls::open(&server).await?,
            server,
            name: source,
            stream: place.stream.name.clone(),
            durable: place.durable.clone(),
            limits,
            capabilities,
            wanted: wanted.clone(),
            open: None,
            count: 0,
            suspicious: true,
            stalled: false,
        })
    }

    /// Asks for this many messages.
    async fn pull(&mut self, free: usize) -> Result<(), NatsError> {
        let batch = free.min(self.limits.most);
        let expires = self.limits.longest.map_or(PULL, |longest| longest.min(PULL));
        self.count += 1;
        let inbox = format!("{}.{}", self.pulls.inbox, self.count);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut request = json!({ "batch": batch, "expires": nanos(expires) });
        // A heartbeat must come twice at least while a pull waits.
        if expires >= HEARTBEAT * 2 {
            request["idle_heartbeat"] = nanos(HEARTBEAT).into();
        }
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.durable);
        let asked = self.server.client.publish_with_reply(subject, inbox.clone(), request.to_string().into()).await;
        asked.map_err(|_| self.server.why())?;
        self.open = Some(Pull { inbox, left: batch });
        Ok(())
    }

    /// Takes in what came: a message to hand on, or the server's word about a pull.
    async fn take(
        &mut self,
        Delivered { at, message }: Delivered,
        batch: &mut Vec<Incoming<NatsToken>>,
    ) -> Result<Said, NatsError> {
        // A message may be published with a status of its own, and only the server's word has no reply.
        if let (Some(status), None) = (message.status, &message.reply) {
            return self.status(status.as_u16(), message.description.as_deref().unwrap_or_default(), &message.subject);
        }
        if let Some(pull) = &mut self.open {
            pull.left = pull.left.saturating_sub(1);
            if pull.left == 0 {
                self.open = None;
            }
        }
        self.suspicious = true;
        // While the consumer fetched nothing, its lease went on.
        if at.elapsed() > self.limits.lease / 3 {
            self.server.give_back(&message).await;
        } else {
            batch.push(self.incoming(at, message)?);
        }
        Ok(Said::Nothing)
    }

    fn status(&mut self, status: u16, text: &str, subject: &str) -> Result<Said, NatsError> {
        if status == 100 {
            return Ok(Said::Heartbeat);
        }
        self.open.take_if(|pull| pull.inbox == subject);
        match status {
            408 => Ok(Said::Nothing),
            409 if text.contains("Batch Completed") => Ok(Said::Nothing),
            400 => Err(NatsError::JetStream {
                request: format!("CONSUMER.MSG.NEXT.{}.{}", self.stream, self.durable),
                code: status.into(),
                description: text.to_owned(),
            }),
            503 => Err(NatsError::Ended(format!("nobody answers for durable `{}`", self.durable))),
            // Deleted, its leader moved, the server going down, its limits changed: it is found again, or not.
            _ => Err(NatsError::Ended(format!("durable `{}`: {text} ({status})", self.durable))),
        }
    }

    fn incoming(&self, at: Instant, message: Message) -> Result<Incoming<NatsToken>, NatsError> {
        let reply = message.reply.as_deref().unwrap_or_default().to_owned();
        let facts =
            Facts::read(&reply).ok_or_else(|| NatsError::Protocol(format!("a delivery with reply `{reply}`")))?;
        let mut received = Received::new(Arc::clone(&self.name), message.payload);
        received.headers = headers::received(message.headers.as_ref());
        received.sent_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(facts.stored_at));
        received.position = Some(facts.sequence);
        received.delivery_count = facts.deliveries;
        received.redelivered = facts.deliveries > 1;
        Ok(Incoming { received, token: NatsToken::new(reply, at + self.limits.lease), leased_at: at })
    }

    /// Looks why nothing comes. A durable hands out nothing while its cap of unacknowledged messages is reached, and says
    /// nothing about it.
    async fn look(&mut self) {
        if !self.suspicious {
            return;
        }
        let info = timeout(LOOK, self.server.consumer(&self.stream, &self.durable)).await;
        let Ok(Ok(Some(info))) = info else { return };
        let unacknowledged = info.num_ack_pending;
        self.suspicious = unacknowledged > 0 || info.paused;
        let full = self.limits.cap.filter(|cap| *cap > 1 && unacknowledged >= *cap);
        let reason = match full {
            Some(cap) if info.num_pending > 0 => format!(
                "durable `{}` has {cap} unacknowledged messages, delayed retries included, as many as it may \
                 (max_ack_pending), and {} wait behind them: raise it, or retry sooner",
                self.durable, info.num_pending
            ),
            _ if info.paused => format!("durable `{}` is paused", self.durable),
            _ => return self.flows(),
        };
        if !self.stalled {
            tracing::warn!(source = %self.name, %reason, "nothing comes");
        }
        self.stalled = true;
        self.wanted.health.down(reason);
    }

    fn flows(&mut self) {
        if std::mem::take(&mut self.stalled) {
            self.wanted.health.up();
        }
    }

    /// What has come already, as far as there is room.
    async fn take_ready(&mut self, free: usize, batch: &mut Vec<Incoming<NatsToken>>) -> Result<(), NatsError> {
        while batch.len() < free
            && let Some(delivered) = self.pulls.ready()
        {
            self.take(delivered, batch).await?;
        }
        Ok(())
    }

    async fn next(&mut self, free: usize) -> Result<Vec<Incoming<NatsToken>>, NatsError> {
        if !self.unreadable.is_empty() {
            let some = free.min(self.unreadable.len());
            return Ok(self.unreadable.drain(..some).collect());
        }
        let mut silent_since = Instant::now();
        loop {
            let mut batch = Vec::new();
            self.take_ready(free, &mut batch).await?;
            if !batch.is_empty() {
                self.flows();
                return Ok(batch);
            }
            if self.open.is_none() {
                self.pull(free).await?;
            }
            let delivered = tokio::select! {
                delivered = timeout_at(silent_since + SILENCE, self.pulls.next()) => delivered,
                why = self.server.over() => return Err(why),
            };
            let delivered = delivered.map_err(|_| NatsError::silence("neither messages nor heartbeats", SILENCE))?;
            let delivered = delivered.ok_or_else(|| self.server.why())?;
            silent_since = Instant::now();
            let said = self.take(delivered, &mut batch).await?;
            if !batch.is_empty() {
                // Together with what came in the meantime.
                self.take_ready(free, &mut batch).await?;
                self.flows();
                return Ok(batch);
            }
            if matches!(said, Said::Heartbeat) {
                self.look().await;
            }
        }
    }
}

impl Source for NatsSource {
    type Settler = NatsSettler;
    type Token = NatsToken;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn findings(&self) -> Vec<Finding> {
        self.limits.findings.clone()
    }

    fn settler(&self) -> NatsSettler {
        NatsSettler { server: self.server.clone(), lease: self.limits.lease }
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<NatsToken>>, BrokerError> {
        let received = self.next(free).await;
        if let Err(error) = &received {
            if self.open.is_some() && self.server.was_lost() {
                self.suspicion.rouse();
            }
            // What is open on this connection must not be settled on what the source is opened to again.
            self.server.end(error.to_string()).await;
        } else if self.opened_at.elapsed() > self.limits.lease * 2 + SILENCE {
            self.suspicion.calm();
        }
        Ok(received?)
    }
}

/// What a delivery's reply subject says of it.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    deliveries: u32,
    sequence: u64,
    /// Nanoseconds since 1970.
    stored_at: u64,
}

impl Facts {
    /// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.CONSUMER SEQUENCE.TIME.PENDING`, or the same with domain and account
    /// behind `ACK` and more at the end.
    fn read(reply: &str) -> Option<Self> {
        let parts = reply.strip_prefix("$JS.ACK.")?.split('.').collect::<Vec<_>>();
        let facts = match parts.len() {
            7 => &parts[2..],
            9.. => &parts[4..],
            _ => return None,
        };
        Some(Self {
            deliveries: facts[0].parse().ok()?,
            sequence: facts[1].parse().ok()?,
            stored_at: facts[3].parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_both_shapes_of_reply() {
        let facts = Facts { deliveries: 2, sequence: 7, stored_at: 1_700_000_000 };
        assert_eq!(Facts::read("$JS.ACK.orders.shop.2.7.9.1700000000.0").as_ref(), Some(&facts));
        assert_eq!(Facts::read("$JS.ACK._.hash.orders.shop.2.7.9.1700000000.0").as_ref(), Some(&facts));
        assert_eq!(Facts::read("$JS.ACK.hub.hash.orders.shop.2.7.9.1700000000.0.x").as_ref(), Some(&facts));
        for nonsense in ["", "$JS.ACK", "$JS.ACK.a.b.c", "$JS.ACK.orders.shop.two.7.9.1700000000.0", "inbox.1"] {
            assert_eq!(Facts::read(nonsense), None);
        }
    }
}
