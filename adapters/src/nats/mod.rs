//! NATS JetStream.
//!
//! | of a broker | here |
//! |---|---|
//! | source | a stream, or a subject in one: `.handle("orders", …)` is stream `orders`, or else subject `orders` in whatever stream holds it, or else a stream that is made for it |
//! | consumers of a group | those of a service: its durable pull consumer is named by it, and each service gets every message |
//! | lease | the durable's acknowledgement wait, or its backoff, as the server has them; extended by in-progress signals |
//! | acknowledgement | waits for the server's reply; what isn't confirmed counts as lost, and comes again as a duplicate |
//! | retry | negative acknowledgement with a delay |
//! | delivery count, position | the server's count; the message's sequence in the stream |
//! | order | with a durable that hands out one message at a time: [`Nats::one_at_a_time`] |
//!
//! A source has a connection of its own, and a delivery belongs to it: when it ends, nothing more is said about the delivery,
//! and the source is opened again. What the server is set up with is read at each opening, and is a
//! [`Finding`](inboxed_runtime::Finding) if messages would be lost, come twice or stand still. Servers from 2.9 on will do.
//!
//! A message with a header that the NATS client can't read, one that isn't UTF-8 for one, ends the connection it comes on. It is
//! then read from the stream by its number and handled like any other; but each of its deliveries costs a connection, and
//! what that had in flight comes again after its lease.
//!
//! ```no_run
//! use inboxed_adapters::nats::{Binding, Nats};
//!
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Nats::connect("nats://localhost").await?;
//! let broker = broker.source("payments", Binding::stream("EVENTS").subject("payments.>"));
//! // app.run(broker).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod api;
mod connection;
mod durable;
mod error;
mod headers;
mod options;
mod place;
mod publisher;
mod pulls;
mod settings;
mod settler;
mod source;
mod unreadable;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inboxed_runtime::broker::{BrokerError, Transport, Wanted};

use self::address::Credentials;
use self::connection::Login;
pub use self::error::NatsError;
pub use self::options::Binding;
use self::options::Options;
use self::place::{Place, Purpose};
pub use self::publisher::Publisher;
pub use self::settler::{NatsSettler, NatsToken};
pub use self::source::NatsSource;
use self::unreadable::Suspicions;

/// NATS JetStream. See the [module](self) for what it does.
#[derive(Clone, Debug)]
pub struct Nats {
    login: Login,
    options: Options,
    /// Where each source was found the last time.
    places: Arc<Mutex<HashMap<String, Place>>>,
    suspicions: Suspicions,
}

impl Nats {
    /// The servers of a URL: `nats://localhost`, `tls://user:password@one:4222,two:4222`, `nats://token@host`. Nothing is
    /// connected to yet.
    ///
    /// # Errors
    /// [`NatsError::Url`].
    pub fn new(url: &str) -> Result<Self, NatsError> {
        let (address, credentials) = address::parse(url)?;
        let login = Login { address, credentials, name: Arc::from("inboxed"), roots: None };
        Ok(Self { login, options: Options::default(), places: Arc::default(), suspicions: Suspicions::default() })
    }

    /// The servers of a URL, as [`Nats::new`], one of which must let us in now.
    ///
    /// # Errors
    /// [`NatsError`], which says what is wrong.
    pub async fn connect(url: &str) -> Result<Self, NatsError> {
        let nats = Self::new(url)?;
        nats.login.connect(0).await?;
        Ok(nats)
    }

    /// Logs in with a credentials file, as `nsc` writes it. It is read at each connection, so that it may be renewed.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.login.credentials = Credentials::File(path.into());
        self
    }

    /// Logs in with the key of this seed.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.login.credentials = Credentials::Nkey(seed.into());
        self
    }

    /// Trusts the certificates in this PEM file instead of the system's.
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> Self {
        self.login.roots = Some(path.into());
        self
    }

    /// What the connection is called in the server's reports; `inboxed` by default.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.login.name = name.into();
        self
    }

    /// Says where a source's messages are, if that isn't plain from its name.
    pub fn source(mut self, name: impl Into<Arc<str>>, binding: Binding) -> Self {
        self.options.bindings.insert(name.into(), binding);
        self
    }

    /// The durable to consume each source through, instead of one named by the service.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.options.durable = Some(name.into());
        self
    }

    /// How long the durables that are made here wait for an acknowledgement: 30 s by default. It is the lease, and is
    /// extended while a message is here.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.options.ack_wait = wait;
        self
    }

    /// How many messages the durables that are made here may have unacknowledged, in all processes, delayed retries included:
    /// 10,000 or twenty times what one process takes.
    pub fn max_ack_pending(mut self, messages: usize) -> Self {
        self.options.max_ack_pending = Some(messages);
        self
    }

    /// Lets the durables that are made here hand out one message at a time, so that each source keeps its order, delayed
    /// retries included.
    pub fn one_at_a_time(self) -> Self {
        self.max_ack_pending(1)
    }

    /// How long the streams that are made here keep a message: 14 days by default.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.options.max_age = age;
        self
    }

    /// Makes neither streams nor durables when a source is opened: what isn't there is an error. `create_topology` makes them
    /// all the same, since it is asked to.
    pub fn existing_only(mut self) -> Self {
        self.options.existing_only = true;
        self
    }

    fn place(&self, source: &str) -> Option<Place> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(source).cloned()
    }

    fn remember(&self, source: &str, place: Place) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(source.to_owned(), place);
    }
}

impl Transport for Nats {
    type Source = NatsSource;

    fn system(&self) -> &'static str {
        "nats"
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<NatsSource, BrokerError> {
        let server = self.login.connect(wanted.in_flight).await?;
        let before = self.place(name);
        let purpose = Purpose::Opening(before.as_ref());
        let place = place::find(&server, name, &wanted.service, &self.options, purpose).await?;
        self.remember(name, place.clone());
        let durable = durable::open(&server, name, &place, wanted, &self.options).await?;
        Ok(NatsSource::open(server, name, &place, durable, wanted, self.suspicions.of(name)).await?)
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        let server = self.login.connect(0).await?;
        let place = place::find(&server, name, &wanted.service, &self.options, Purpose::Making).await?;
        let made = durable::create(&server, &place, wanted, &self.options).await?;
        let stream = &place.stream.name;
        let stream_made = place.made.then(|| format!("stream `{stream}`"));
        let durable_made = made.then(|| format!("durable `{}` of stream `{stream}`", place.durable));
        if place.ours {
            self.remember(name, place);
        }
        Ok(stream_made.into_iter().chain(durable_made).collect())
    }
}
