//! The `sqs` adapter under test, on an emulator: the one that `INBOXED_SQS_URL` names, or one of the test's own where the server
//! is stopped.

pub(crate) mod envelopes;
pub(crate) mod groups;
pub(crate) mod outages;
mod proxy;
mod server;
pub(crate) mod settings;
pub(crate) mod settlements;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inboxed::broker::{BrokerError, Capabilities, Incoming, Source, Transport, Wanted};
use inboxed::sqs::{Binding, Sqs, SqsSettler, SqsSource, SqsToken};
use inboxed::{Finding, Headers};
use serde_json::{Value, json};

use self::proxy::Proxy;
use self::server::{Server, url_of};
use crate::adapter::{Adapter, Outgoing, Refused};
use crate::services::{Own, shared};

/// The queues that are made here keep a message for this long, and their dead-letter queues too.
const KEPT: Duration = Duration::from_hours(24);

/// An SQS server, and the queues that a trial has on it. `FIFO` ones keep the order of a group.
pub(crate) struct Queues<const FIFO: bool> {
    server: Server,
    own: Option<Own>,
    transport: Made<FIFO>,
}

impl<const FIFO: bool> Queues<FIFO> {
    fn on(url: &str, own: Option<Own>, lease: Duration) -> Self {
        let sqs = Sqs::new(url).unwrap().visibility_timeout(lease).retention(KEPT).dead_letter_retention(KEPT);
        Self { server: Server::of(url), own, transport: Made { sqs, queues: Arc::default() } }
    }

    /// The shared server, reached through a proxy by the adapter, and directly by the test. Polls are short, since the test
    /// ends only with those that the proxy carries.
    fn through(proxy: &Proxy, lease: Duration) -> Self {
        let mut through = Self::on(&proxy.url(), None, lease);
        through.server = Server::of(&shared_url());
        through.transport.sqs = through.transport.sqs.clone().wait(Duration::from_secs(1));
        through
    }

    /// Makes a queue as somebody else would, to be deleted at the end, and answers with its ARN.
    async fn make_queue(&self, name: &str, attributes: Value) -> String {
        self.transport.queues.lock().unwrap().insert(name.to_owned());
        let made = self.server.ask_soon("CreateQueue", json!({ "QueueName": name, "Attributes": attributes })).await;
        assert!(made["QueueUrl"].is_string(), "{made}");
        self.server.attributes(name).await["QueueArn"].as_str().unwrap().to_owned()
    }

    async fn delete_queue(&self, name: &str) {
        self.server.ask_soon("DeleteQueue", json!({ "QueueUrl": url_of(name) })).await;
    }

    /// Lets a source's queue give a message up after so many deliveries.
    async fn give_up_after(&self, source: &str, count: u32) {
        let dead = self.server.attributes(&dead_of(&queue::<FIFO>(source))).await;
        let policy = json!({ "deadLetterTargetArn": dead["QueueArn"], "maxReceiveCount": count }).to_string();
        let attributes =
            json!({ "QueueUrl": url_of(&queue::<FIFO>(source)), "Attributes": { "RedrivePolicy": policy } });
        assert!(self.server.ask_soon("SetQueueAttributes", attributes).await["__type"].is_null());
    }

    /// How many messages the queue has given up.
    async fn dead(&self, source: &str) -> usize {
        self.server.messages(&dead_of(&queue::<FIFO>(source))).await
    }

    /// Puts a message among those that the queue has given up.
    async fn publish_dead(&self, source: &str, body: &[u8]) {
        let body = String::from_utf8(body.to_vec()).unwrap();
        let sent = json!({ "QueueUrl": url_of(&dead_of(&queue::<FIFO>(source))), "MessageBody": body });
        assert!(self.server.ask_soon("SendMessage", sent).await["MessageId"].is_string());
    }

    /// Sends back what the queue has given up, and answers how many those were.
    async fn send_back(&self, source: &str) -> usize {
        let queue = queue::<FIFO>(source);
        self.server.move_messages(&dead_of(&queue), &queue).await
    }
}

/// The queue of a source.
fn queue<const FIFO: bool>(source: &str) -> String {
    format!("{source}{}", if FIFO { ".fifo" } else { "" })
}

/// The dead-letter queue of a queue.
fn dead_of(queue: &str) -> String {
    let stem = queue.trim_end_matches(".fifo");
    format!("{stem}-dead{}", &queue[stem.len()..])
}

/// The emulator that all tests share.
fn shared_url() -> String {
    shared("INBOXED_SQS_URL")
}

/// Standard queues.
pub(crate) type Standard = Queues<false>;

/// FIFO queues.
pub(crate) type Fifo = Queues<true>;

/// A transport to the queues of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Made<const FIFO: bool> {
    sqs: Sqs,
    /// What was made.
    queues: Arc<Mutex<BTreeSet<String>>>,
}

impl<const FIFO: bool> Made<FIFO> {
    fn bound(&self, source: &str) -> Sqs {
        self.sqs.clone().source(source, Binding::queue(queue::<FIFO>(source)))
    }
}

impl<const FIFO: bool> Transport for Made<FIFO> {
    type Source = AsPublished;

    fn system(&self) -> &'static str {
        self.sqs.system()
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<AsPublished, BrokerError> {
        Ok(AsPublished(self.bound(name).open(name, wanted).await?))
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        self.queues.lock().unwrap().insert(queue::<FIFO>(name));
        self.bound(name).create(name, wanted).await
    }
}

/// Deliveries without the header of their group, which a message of a FIFO queue has and the suite hasn't published.
pub(crate) struct AsPublished(SqsSource);

impl Source for AsPublished {
    type Settler = SqsSettler;
    type Token = SqsToken;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn findings(&self) -> Vec<Finding> {
        self.0.findings()
    }

    fn settler(&self) -> SqsSettler {
        self.0.settler()
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<SqsToken>>, BrokerError> {
        let mut received = self.0.receive(free).await?;
        for incoming in &mut received {
            let headers = incoming.received.headers.iter().filter(|(name, _)| *name != "MessageGroupId");
            incoming.received.headers = headers.map(|(name, value)| (name, value.to_vec())).collect();
        }
        Ok(received)
    }
}

impl<const FIFO: bool> Adapter for Queues<FIFO> {
    type Transport = Made<FIFO>;

    const DUPLICATES: f64 = 0.0;
    const SHORT_LEASE: Duration = Duration::from_secs(2);
    const DATED: bool = false;
    const MAKES_WHEN_OPENED: bool = false;
    const CONFIRMS: bool = true;

    fn held_to() -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = FIFO;
        capabilities.persistent = true;
        capabilities.delivery_count = true;
        capabilities.delivery_limit = Some(1_000);
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        // In the queue, among the dead letters, and in the queue again.
        capabilities.retention = Some(KEPT * if FIFO { 3 } else { 2 });
        capabilities
    }

    async fn start(lease: Duration) -> Self {
        Self::on(&shared_url(), None, lease)
    }

    async fn start_own(lease: Duration) -> Result<Self, Refused> {
        let own = Own::start("sqs").await;
        Ok(Self::on(&own.url().await, Some(own), lease))
    }

    fn connect(&self, group: &str) -> Result<Made<FIFO>, Refused> {
        if group.is_empty() {
            Ok(self.transport.clone())
        } else {
            Err(Refused("a queue hands a message to one consumer"))
        }
    }

    async fn publish(&self, source: &str, outgoing: Outgoing) -> Result<(), Refused> {
        let Outgoing { body, headers, ordering_key, sent_at } = outgoing;
        assert!(sent_at.is_none(), "the service dates messages itself");
        if ordering_key.is_some() && !FIFO {
            return Err(Refused("a standard queue keeps no order"));
        }
        let mut message = inboxed::broker::Outgoing::new(body);
        message.headers = headers.into_iter().collect::<Headers>();
        // Messages without a key are to be handled side by side.
        message.group = FIFO.then(|| ordering_key.unwrap_or_else(|| format!("{:016x}", fastrand::u64(..))));
        self.transport.bound(source).publisher().publish(source, message).await.unwrap();
        Ok(())
    }

    async fn backlog(&self, _: &str, source: &str) -> usize {
        self.server.messages(&queue::<FIFO>(source)).await
    }

    async fn stop_server(&self) -> Result<(), Refused> {
        self.own.as_ref().ok_or(Refused("a shared server isn't stopped"))?.stop().await;
        Ok(())
    }

    async fn start_server(&self) -> Result<(), Refused> {
        self.own.as_ref().ok_or(Refused("a shared server isn't stopped"))?.start_again().await;
        Ok(())
    }
}

impl<const FIFO: bool> Drop for Queues<FIFO> {
    fn drop(&mut self) {
        if self.own.is_none() && !std::thread::panicking() {
            for queue in self.transport.queues.lock().unwrap().iter() {
                for name in [queue.clone(), dead_of(queue)] {
                    self.server.ask("DeleteQueue", &json!({ "QueueUrl": url_of(&name) }));
                }
            }
        }
    }
}
