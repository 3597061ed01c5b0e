//! The brokers that are servers: each by a client of the soak's own, behind one type.

use crate::arguments::BrokerKind;
use crate::ledger::Message;
use crate::{nats, rabbitmq, sqs};

/// A connection to a broker.
pub(crate) enum Client {
    Nats(nats::Client),
    Sqs(sqs::Client),
    Rabbitmq(rabbitmq::Client),
}

/// A message, and by what its delivery is acknowledged.
pub(crate) struct Delivery {
    pub(crate) receipt: String,
    pub(crate) body: Vec<u8>,
}

/// Takes out a message that is stored: one copy of it, since another may be waiting.
pub(crate) fn take_out(left: &mut Vec<Message>, stored: &Message) {
    if let Some(place) = left.iter().position(|message| message == stored) {
        left.remove(place);
    }
}

/// The broker's name for `scripts/services`, if it is a server.
pub(crate) fn server_of(broker: BrokerKind) -> Option<&'static str> {
    match broker {
        BrokerKind::Memory => None,
        BrokerKind::Nats => Some("nats"),
        BrokerKind::Sqs => Some("sqs"),
        BrokerKind::Rabbitmq => Some("rabbitmq"),
    }
}

/// Makes what the sources need.
pub(crate) async fn prepare(broker: BrokerKind, url: &str) -> anyhow::Result<()> {
    match broker {
        BrokerKind::Memory => Ok(()),
        BrokerKind::Nats => nats::prepare(url).await,
        BrokerKind::Sqs => sqs::prepare(url).await,
        BrokerKind::Rabbitmq => rabbitmq::prepare(url).await,
    }
}

/// How many messages aren't delivered, and how many aren't acknowledged, by the broker's own word.
pub(crate) async fn unsettled(broker: BrokerKind, url: &str) -> anyhow::Result<(u64, u64)> {
    match broker {
        BrokerKind::Memory => Ok((0, 0)),
        BrokerKind::Nats => nats::unsettled(url).await,
        BrokerKind::Sqs => sqs::unsettled(url).await,
        BrokerKind::Rabbitmq => rabbitmq::unsettled(url).await,
    }
}

impl Client {
    pub(crate) async fn connect(broker: BrokerKind, url: &str) -> anyhow::Result<Self> {
        match broker {
            BrokerKind::Memory => anyhow::bail!("the memory broker is no server"),
            BrokerKind::Nats => nats::Client::connect(url).await.map(Self::Nats),
            BrokerKind::Sqs => sqs::Client::connect(url).await.map(Self::Sqs),
            BrokerKind::Rabbitmq => rabbitmq::Client::connect(url).await.map(Self::Rabbitmq),
        }
    }

    /// Publishes messages, and takes out those that are stored. What is left after an error may be stored or not, and the client
    /// is of no use any more.
    pub(crate) async fn publish(&mut self, left: &mut Vec<Message>) -> anyhow::Result<()> {
        match self {
            Self::Nats(client) => client.publish(left).await,
            Self::Sqs(client) => client.publish(left).await,
            Self::Rabbitmq(client) => client.publish(left).await,
        }
    }

    /// The next message of a source, if there is one for the moment.
    pub(crate) async fn next(&mut self, source: &str) -> anyhow::Result<Option<Delivery>> {
        match self {
            Self::Nats(client) => client.next(source).await,
            Self::Sqs(client) => client.next(source).await,
            Self::Rabbitmq(client) => client.next(source).await,
        }
    }

    /// Acknowledges a delivery that came on this connection.
    pub(crate) async fn acknowledge(&mut self, source: &str, receipt: &str) -> anyhow::Result<()> {
        match self {
            Self::Nats(client) => client.acknowledge(receipt).await,
            Self::Sqs(client) => client.acknowledge(source, receipt).await,
            Self::Rabbitmq(client) => client.acknowledge(receipt).await,
        }
    }
}
