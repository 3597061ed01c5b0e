//! RabbitMQ, over AMQP 0-9-1.
//!
//! | of a broker | here |
//! |---|---|
//! | source | a queue: `.handle("orders", …)` of service `shop` reads queue `orders.shop`, which is bound to exchange `orders`, so that each service gets every message; or else queue `orders`, if that is there instead |
//! | lease | the server's `consumer_timeout`, half an hour unless it is set otherwise; it can't be extended, and counts from the delivery on. A handler's timeout must be below it |
//! | acknowledgement | is sent, and never confirmed; what is lost comes again as a duplicate |
//! | retry | moved into a delay queue, which hands it back: it survives restarts, and no loop is hot |
//! | given back | negative acknowledgement with requeue |
//! | delivery count | the server's for quorum queues, and what was counted before a retry |
//! | order | with a queue of one active consumer: [`RabbitMq::one_at_a_time`] |
//!
//! A source has a connection of its own, and a delivery belongs to its channel: when it is closed, by whichever side, nothing
//! more is said about the delivery, and the source is opened again. Retries and publishers share another connection, since
//! the server stops listening to one that publishes when it is short of memory.
//!
//! A name, property or header name that isn't UTF-8 can't be read by the client, which loses its connection over it: such a
//! message must be taken out of the queue by hand.
//!
//! ```no_run
//! use inboxed_adapters::rabbitmq::{Binding, RabbitMq};
//!
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = RabbitMq::connect("amqp://user:password@localhost/shop").await?;
//! let broker = broker.source("payments", Binding::exchange("events").key("payments.#"));
//! // app.create_topology(&broker).await?;
//! // app.run(broker).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod arguments;
mod connection;
mod delay;
mod error;
mod facts;
mod headers;
mod moved;
mod options;
mod outlet;
mod place;
mod publisher;
mod settler;
mod source;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inboxed_runtime::broker::{BrokerError, Transport, Wanted};

use self::arguments::Arguments;
use self::connection::Login;
use self::delay::Delays;
pub use self::error::RabbitMqError;
use self::facts::Facts;
pub use self::options::Binding;
use self::options::Options;
use self::outlet::Outlet;
pub use self::publisher::Publisher;
pub use self::settler::{RabbitMqSettler, RabbitMqToken};
pub use self::source::RabbitMqSource;

/// RabbitMQ. See the [module](self) for what it does.
#[derive(Clone, Debug)]
pub struct RabbitMq {
    login: Login,
    options: Options,
    outlet: Arc<Outlet>,
}

impl RabbitMq {
    /// The server of a URL: `amqp://localhost`, `amqps://user:password@host:5671/vhost`, percent-encoded where need be. Nothing
    /// is connected to yet.
    ///
    /// # Errors
    /// [`RabbitMqError::Url`].
    pub fn new(url: &str) -> Result<Self, RabbitMqError> {
        let login = Login { address: address::parse(url)?, name: Arc::from("inboxed"), roots: None };
        Ok(Self { outlet: Arc::new(Outlet::new(login.clone())), login, options: Options::default() })
    }

    /// The server of a URL, as [`RabbitMq::new`], which must let us in now.
    ///
    /// # Errors
    /// [`RabbitMqError`], which says what is wrong.
    pub async fn connect(url: &str) -> Result<Self, RabbitMqError> {
        let rabbitmq = Self::new(url)?;
        rabbitmq.login.connect().await?.end().await;
        Ok(rabbitmq)
    }

    /// What the connections are called in the server's reports; `inboxed` by default.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.login.name = name.into();
        self.outlet = Arc::new(Outlet::new(self.login.clone()));
        self
    }

    /// Trusts the certificates in this PEM file beside the system's.
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> Self {
        self.login.roots = Some(path.into());
        self.outlet = Arc::new(Outlet::new(self.login.clone()));
        self
    }

    /// Says where a source's messages are, if that isn't plain from its name.
    pub fn source(mut self, name: impl Into<Arc<str>>, binding: Binding) -> Self {
        self.options.bindings.insert(name.into(), binding);
        self
    }

    /// The server's `consumer_timeout`, which AMQP doesn't tell: 30 min by default, as the server's own. It is the lease of a
    /// delivery. Say it if the server, a policy or the queue has another.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.options.consumer_timeout = timeout;
        self
    }

    /// After how many deliveries the server gives a message up, restarts included, if a policy says so: AMQP doesn't tell.
    pub fn delivery_limit(mut self, deliveries: u32) -> Self {
        self.options.delivery_limit = Some(deliveries);
        self
    }

    /// Takes one message at a time, and lets its retries wait here, so that nothing overtakes them. The queues that are made have
    /// a single active consumer, among all processes.
    pub fn one_at_a_time(mut self) -> Self {
        self.options.one_at_a_time = true;
        self
    }

    fn place(&self, source: &str, service: &str) -> place::Place {
        place::of(source, service, self.options.bindings.get(source))
    }

    async fn find(&self, source: &str, wanted: &Wanted) -> Result<RabbitMqSource, RabbitMqError> {
        let connection = self.login.connect().await?;
        let place = self.place(source, &wanted.service);
        let queue = place::find(&connection, source, &place).await?;
        let ours = Arguments::of_ours(topology::ours(&self.options));
        let read = Arguments::read(&connection, &queue, ours).await?;
        let facts = Facts::of(&queue, read, &self.options)?;
        let delays = Delays { outlet: Arc::clone(&self.outlet), queue: queue.into() };
        RabbitMqSource::open(connection, source, delays, facts, wanted).await
    }
}

impl Transport for RabbitMq {
    type Source = RabbitMqSource;

    fn system(&self) -> &'static str {
        "rabbitmq"
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<RabbitMqSource, BrokerError> {
        Ok(self.find(name, wanted).await?)
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        let connection = self.login.connect().await?;
        let created = topology::create(&connection, name, &self.place(name, &wanted.service), &self.options).await;
        connection.end().await;
        Ok(created?)
    }
}
