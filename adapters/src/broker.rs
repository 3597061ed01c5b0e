//! The broker that a URL names, among the adapters that are compiled in.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use inboxed_runtime::broker::{AnySource, AnyTransport, BrokerError, Outgoing, Publisher, Transport, Wanted};

/// The features that stand for a broker, and the schemes of their URLs.
const SCHEMES: [(&str, &str, bool); 6] = [
    ("memory", "memory", cfg!(feature = "memory")),
    ("nats", "nats", cfg!(feature = "nats")),
    ("tls", "nats", cfg!(feature = "nats")),
    ("amqp", "rabbitmq", cfg!(feature = "rabbitmq")),
    ("amqps", "rabbitmq-tls", cfg!(feature = "rabbitmq-tls")),
    ("sqs", "sqs", cfg!(feature = "sqs")),
];

/// A broker that is chosen by a URL when the program runs: `memory://`, `nats://localhost:4222`, `tls://user:password@host`,
/// `sqs://`, `amqp://user:password@host/vhost`.
///
/// Each adapter has a type of its own too, with more to set up.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use inboxed_adapters::Broker;
///
/// let broker = Broker::connect("memory://").await?;
/// // app.run(broker).await?;
/// # drop(broker);
/// # Ok::<_, inboxed_adapters::ConnectError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Broker {
    transport: AnyTransport,
    sending: Sending,
}

/// How the broker is published to.
#[derive(Clone, Debug)]
enum Sending {
    /// Nobody has said how.
    Unknown,
    /// Without connecting first.
    Ready(BrokerPublisher),
    #[cfg(feature = "nats")]
    Nats(Box<crate::nats::Nats>),
    #[cfg(feature = "rabbitmq")]
    RabbitMq(Box<crate::rabbitmq::RabbitMq>),
}

/// Why a URL gives no broker. The URL isn't repeated: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// It isn't one.
    #[error("the broker's URL has no scheme: write it as `nats://HOST` or `memory://`")]
    NoScheme,
    /// Its broker isn't compiled in.
    #[error("`{scheme}://` needs the feature `{feature}` of `inboxed`; compiled in are {available}")]
    FeatureOff {
        /// What the URL begins with.
        scheme: String,
        /// The feature to turn on.
        feature: &'static str,
        /// The schemes that will do.
        available: String,
    },
    /// No adapter has this scheme.
    #[error("no broker has the scheme `{scheme}://`; compiled in are {available}")]
    UnknownScheme {
        /// What the URL begins with.
        scheme: String,
        /// The schemes that will do.
        available: String,
    },
    /// The broker was set up by hand, without its publisher.
    #[error("nothing is known of publishing to a broker that was set up by hand: add `.with_publisher(…)` to it")]
    NoPublisher,
    /// NATS can't be reached, or refuses.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] crate::nats::NatsError),
    /// RabbitMQ can't be reached, or refuses.
    #[cfg(feature = "rabbitmq")]
    #[error(transparent)]
    RabbitMq(#[from] crate::rabbitmq::RabbitMqError),
    /// What SQS is to be reached by is incomplete, or can't be used.
    #[cfg(feature = "sqs")]
    #[error(transparent)]
    Sqs(#[from] crate::sqs::SqsError),
}

impl Broker {
    /// The broker of this URL, connected.
    ///
    /// # Errors
    /// [`ConnectError`], which names the feature that a scheme needs.
    #[allow(clippy::unused_async, reason = "some brokers are connected to")]
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let (scheme, _) = url.split_once("://").ok_or(ConnectError::NoScheme)?;
        match scheme {
            #[cfg(feature = "memory")]
            "memory" => {
                let memory = crate::memory::Memory::new();
                Ok(Self::from_transport(memory.clone()).with_publisher(memory))
            }
            #[cfg(feature = "nats")]
            "nats" | "tls" => {
                let nats = crate::nats::Nats::connect(url).await?;
                Ok(Self { sending: Sending::Nats(Box::new(nats.clone())), ..Self::from_transport(nats) })
            }
            #[cfg(feature = "rabbitmq")]
            "amqp" => Self::rabbitmq(url).await,
            #[cfg(feature = "rabbitmq-tls")]
            "amqps" => Self::rabbitmq(url).await,
            #[cfg(feature = "sqs")]
            "sqs" => {
                let sqs = crate::sqs::Sqs::new(url)?;
                Ok(Self::from_transport(sqs.clone()).with_publisher(sqs.publisher()))
            }
            _ => Err(unavailable(scheme)),
        }
    }

    #[cfg(feature = "rabbitmq")]
    async fn rabbitmq(url: &str) -> Result<Self, ConnectError> {
        let rabbitmq = crate::rabbitmq::RabbitMq::connect(url).await?;
        Ok(Self { sending: Sending::RabbitMq(Box::new(rabbitmq.clone())), ..Self::from_transport(rabbitmq) })
    }

    /// The same type for a broker that was set up by hand.
    pub fn from_transport(transport: impl Transport) -> Self {
        Self { transport: AnyTransport::new(transport), sending: Sending::Unknown }
    }

    /// Publishes by this, where the broker was set up by hand.
    pub fn with_publisher(mut self, publisher: impl Publisher) -> Self {
        self.sending = Sending::Ready(BrokerPublisher::new(publisher));
        self
    }

    /// Publishes to this broker, over another connection than the consumers'.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::NoPublisher`] if the broker was set up by hand.
    ///
    /// ```
    /// # #[cfg(feature = "memory")]
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use inboxed_adapters::Broker;
    /// use inboxed_runtime::broker::{Outgoing, Publisher as _};
    ///
    /// let publisher = Broker::connect("memory://").await?.publisher().await?;
    /// publisher.publish("orders", Outgoing::new(r#"{"order_id":1}"#)).await?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[allow(clippy::unused_async, reason = "some brokers are connected to")]
    pub async fn publisher(&self) -> Result<BrokerPublisher, ConnectError> {
        match &self.sending {
            Sending::Unknown => Err(ConnectError::NoPublisher),
            Sending::Ready(publisher) => Ok(publisher.clone()),
            #[cfg(feature = "nats")]
            Sending::Nats(nats) => Ok(BrokerPublisher::new(nats.publisher().await?)),
            #[cfg(feature = "rabbitmq")]
            Sending::RabbitMq(rabbitmq) => Ok(BrokerPublisher::new(rabbitmq.publisher().await?)),
        }
    }
}

/// Publishes to the broker that a URL has named. Clones share a connection.
#[derive(Clone)]
pub struct BrokerPublisher(Arc<dyn PublishesAny>);

impl BrokerPublisher {
    /// Any adapter's publisher behind this type.
    pub fn new(publisher: impl Publisher) -> Self {
        Self(Arc::new(publisher))
    }
}

impl fmt::Debug for BrokerPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrokerPublisher").finish_non_exhaustive()
    }
}

impl Publisher for BrokerPublisher {
    async fn publish(&self, to: &str, message: Outgoing) -> Result<(), BrokerError> {
        self.0.publish_any(to, message).await
    }
}

trait PublishesAny: Send + Sync {
    fn publish_any<'a>(
        &'a self,
        to: &'a str,
        message: Outgoing,
    ) -> Pin<Box<dyn Future<Output = Result<(), BrokerError>> + Send + 'a>>;
}

impl<P: Publisher> PublishesAny for P {
    fn publish_any<'a>(
        &'a self,
        to: &'a str,
        message: Outgoing,
    ) -> Pin<Box<dyn Future<Output = Result<(), BrokerError>> + Send + 'a>> {
        Box::pin(self.publish(to, message))
    }
}

fn unavailable(scheme: &str) -> ConnectError {
    let available = SCHEMES.iter().filter(|(.., on)| *on).map(|(scheme, ..)| format!("`{scheme}://`"));
    let available = match available.collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    };
    let scheme = scheme.to_owned();
    match SCHEMES.iter().find(|(known, ..)| *known == scheme) {
        Some((_, feature, _)) => ConnectError::FeatureOff { scheme, feature, available },
        None => ConnectError::UnknownScheme { scheme, available },
    }
}

impl Transport for Broker {
    type Source = AnySource;

    fn system(&self) -> &'static str {
        self.transport.system()
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<AnySource, BrokerError> {
        self.transport.open(name, wanted).await
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        self.transport.create(name, wanted).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        Broker::connect(url).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn url_that_names_no_broker_is_refused_with_what_would_do() {
        assert!(refusal("localhost:4222").await.contains("nats://HOST"));
        let unknown = refusal("kafka://me:s3cret@host").await;
        assert!(unknown.contains("`kafka://`") && !unknown.contains("s3cret"), "{unknown}");
        for (scheme, _, on) in SCHEMES {
            assert_eq!(unknown.contains(&format!("`{scheme}://`")), on, "{unknown}");
        }
    }

    #[test]
    fn scheme_whose_feature_is_off_names_the_feature() {
        for (scheme, feature, _) in SCHEMES {
            let error = unavailable(scheme).to_string();
            assert!(error.contains(&format!("`{scheme}://` needs the feature `{feature}`")), "{error}");
        }
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn message_is_published_to_the_broker_of_the_url() {
        use inboxed_runtime::broker::Source as _;

        let broker = Broker::connect("memory://").await.unwrap();
        let mut message = Outgoing::new("1");
        message.headers.push("type", "OrderPlaced");
        broker.publisher().await.unwrap().publish("orders", message).await.unwrap();
        let mut source = broker.open("orders", &Wanted::new("", 1)).await.unwrap();
        let received = source.receive(1).await.unwrap().remove(0).received;
        assert_eq!((&received.body[..], received.headers.get("type")), (&b"1"[..], Some("OrderPlaced")));
    }

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn broker_set_up_by_hand_publishes_as_it_was_told() {
        let memory = crate::memory::Memory::new();
        let broker = Broker::from_transport(memory.clone());
        assert!(broker.publisher().await.unwrap_err().to_string().contains("with_publisher"));
        let publisher = broker.with_publisher(memory.clone()).publisher().await.unwrap();
        publisher.publish("orders", Outgoing::new("1")).await.unwrap();
        assert_eq!(memory.counts("orders").published, 1);
    }

    #[cfg(feature = "nats")]
    #[tokio::test]
    async fn server_that_is_not_there_is_named_without_its_password() {
        // The port of a listener that is gone.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let refused = refusal(&format!("nats://me:s3cret@127.0.0.1:{port}")).await;
        assert!(refused.contains(&format!("127.0.0.1:{port}")) && !refused.contains("s3cret"), "{refused}");
    }
}
