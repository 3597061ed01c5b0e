//! The `rabbitmq` adapter under test, on real servers: those that `INBOXED_RABBITMQ_URL` and `INBOXED_RABBITMQ_SHORT_URL` name,
//! or one of the test's own where the server is stopped.

pub(crate) mod cuts;
pub(crate) mod ends;
pub(crate) mod messages;
mod node;
mod proxy;
pub(crate) mod queues;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use inboxed::broker::{BrokerError, Capabilities, Publisher as _};
use inboxed::rabbitmq::{Publisher, RabbitMq};
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use self::node::Node;
use self::proxy::Proxy;
use crate::adapter::{Adapter, Outgoing, Refused};
use crate::services::{Own, shared};
use crate::trial::{SERVICE, Trial};

/// How long the server of that name waits for an acknowledgement.
const SHORT: Duration = Duration::from_secs(3);

/// A RabbitMQ server, and the queues that a trial has on it. `ORDERED` takes one message at a time.
pub(crate) struct Quorum<const ORDERED: bool> {
    url: String,
    node: Node,
    own: Option<Own>,
    rabbitmq: RabbitMq,
    publisher: OnceCell<Publisher>,
    by_hand: OnceCell<(Connection, Channel)>,
    sources: Mutex<BTreeSet<String>>,
}

/// One that hands out many messages at a time.
type Plain = Quorum<false>;

type OnRabbit = Trial<Plain>;

impl<const ORDERED: bool> Quorum<ORDERED> {
    fn on(url: String, own: Option<Own>, lease: Duration) -> Self {
        let rabbitmq = RabbitMq::new(&url).unwrap().consumer_timeout(lease);
        let rabbitmq = if ORDERED { rabbitmq.one_at_a_time() } else { rabbitmq };
        let (node, sources) = (Node::of(&url), Mutex::default());
        Self { url, node, own, rabbitmq, publisher: OnceCell::new(), by_hand: OnceCell::new(), sources }
    }

    /// The shared server, reached through a proxy.
    async fn through(proxy: &Proxy, lease: Duration) -> Self {
        let mut shared = Self::start(lease).await;
        shared.rabbitmq = RabbitMq::new(proxy.url()).unwrap().consumer_timeout(lease);
        // Publishing goes past it.
        let publisher = RabbitMq::new(&shared.url).unwrap().publisher().await.unwrap();
        assert!(shared.publisher.set(publisher).is_ok());
        shared
    }

    /// A channel of the test's own, past the product.
    async fn by_hand(&self) -> &Channel {
        let connect = async || {
            let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
            (connection, channel)
        };
        &self.by_hand.get_or_init(connect).await.1
    }

    /// Publishes a message to a service's own queue, as a foreign client may.
    async fn publish_by_hand(&self, source: &str, properties: BasicProperties, body: &[u8]) {
        let (queue, channel) = (format!("{source}.{SERVICE}"), self.by_hand().await);
        let published =
            channel.basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body, properties);
        assert!(published.await.unwrap().await.unwrap().is_ack());
    }

    /// How many consume a queue.
    async fn consumers(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = self.by_hand().await.queue_declare(queue.into(), passive, FieldTable::default());
        declared.await.unwrap().consumer_count()
    }

    /// Takes a message from a service's own queue, and loses the connection before anything is said about it.
    async fn take_and_die(&self, source: &str) {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let queue = format!("{source}.{SERVICE}");
        let taken = async {
            while channel.basic_get(queue.clone().into(), BasicGetOptions::default()).await.unwrap().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), taken).await.expect("a message");
        connection.close(200, "".into()).await.unwrap();
    }
}

impl<const ORDERED: bool> Adapter for Quorum<ORDERED> {
    type Transport = RabbitMq;

    const DUPLICATES: f64 = 0.0;
    const SHORT_LEASE: Duration = SHORT;
    const DATED: bool = true;
    const MAKES_WHEN_OPENED: bool = false;
    const CONFIRMS: bool = false;

    fn held_to() -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = ORDERED;
        capabilities.groups = true;
        capabilities.persistent = true;
        capabilities.fixed_lease = true;
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        capabilities
    }

    async fn start(lease: Duration) -> Self {
        let variable = if lease > SHORT { "INBOXED_RABBITMQ_URL" } else { "INBOXED_RABBITMQ_SHORT_URL" };
        Self::on(shared(variable), None, lease)
    }

    async fn start_own(lease: Duration) -> Result<Self, Refused> {
        let own = Own::start("rabbitmq").await;
        Ok(Self::on(own.url().await, Some(own), lease))
    }

    fn connect(&self, _: &str) -> Result<RabbitMq, Refused> {
        // Each group is a service, and has a queue of its own by that.
        Ok(self.rabbitmq.clone())
    }

    async fn publish(&self, source: &str, outgoing: Outgoing) -> Result<(), Refused> {
        let Outgoing { body, headers, ordering_key, sent_at } = outgoing;
        if ordering_key.is_some() && !ORDERED {
            return Err(Refused("the queue hands out many messages at a time"));
        }
        self.sources.lock().unwrap().insert(source.to_owned());
        if let Some(sent_at) = sent_at {
            let mut table = FieldTable::default();
            for (name, value) in headers {
                table.insert(name.into(), AMQPValue::LongString(LongString::from(value)));
            }
            let seconds = sent_at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            let properties =
                BasicProperties::default().with_headers(table).with_timestamp(seconds).with_delivery_mode(2);
            self.publish_by_hand(source, properties, &body).await;
            return Ok(());
        }
        let publisher = self.publisher.get_or_init(async || self.rabbitmq.publisher().await.unwrap()).await;
        let mut message = inboxed::broker::Outgoing::new(body);
        message.headers = headers.into_iter().collect();
        loop {
            match publisher.publish(source, message.clone()).await {
                Ok(()) => return Ok(()),
                Err(BrokerError::Unreachable(_)) => sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn backlog(&self, group: &str, source: &str) -> usize {
        let service = if group.is_empty() { SERVICE } else { group };
        self.node.backlog(&format!("{source}.{service}")).await
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

impl<const ORDERED: bool> Drop for Quorum<ORDERED> {
    fn drop(&mut self) {
        if self.own.is_none() && !std::thread::panicking() {
            for source in self.sources.lock().unwrap().iter() {
                self.node.clean(source);
            }
        }
    }
}
