//! What an adapter is: a transport that opens sources, and a settler that answers for their deliveries.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use crate::erased::{AnySource, AnyTransport, SharedSettler, Token};
use bytes::Bytes;
use tokio::time::Instant;

use crate::error::BoxError;
use crate::finding::Finding;
use crate::health::SourceHealth;
use crate::message::{Headers, Received};
use crate::options::Options;
use crate::proof::Committed;

/// A broker: it opens sources by name.
pub trait Transport: Send + Sync + 'static {
    /// What it opens.
    type Source: Source;

    /// The broker's name, as OpenTelemetry's `messaging.system` has it: `memory`, `nats`, `aws_sqs`, `rabbitmq`.
    fn system(&self) -> &'static str;

    /// Opens one source, a queue or a subject, for receiving.
    fn open(&self, name: &str, wanted: &Wanted) -> impl Future<Output = Result<Self::Source, BrokerError>> + Send;

    /// Creates what a source of this name needs and what isn't there, and answers with a line for each. What is there stays as
    /// it is; if it differs from what would be made, that is a [`BrokerError::Refused`] whose error names the difference.
    /// Without an implementation nothing needs to be made.
    fn create(&self, name: &str, wanted: &Wanted) -> impl Future<Output = Result<Vec<String>, BrokerError>> + Send {
        let _ = (name, wanted);
        std::future::ready(Ok(Vec::new()))
    }
}

/// The sending half of a broker.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes a message to a source's name, and waits until the broker has stored it. After an error it may be stored all the
    /// same: publish it again, with the same key inside. A connection that has ended is made anew for the next message.
    fn publish(&self, to: &str, message: Outgoing) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// A message to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The body.
    pub body: Bytes,
    /// The headers.
    pub headers: Headers,
    /// Messages of one group keep their order, where the broker has groups: `MessageGroupId` of an SQS FIFO queue.
    pub group: Option<String>,
    /// By this the broker drops a repetition within its window, where it has one: `MessageDeduplicationId` of an SQS FIFO queue,
    /// `Nats-Msg-Id`.
    pub id: Option<String>,
}

impl Outgoing {
    /// A message without headers.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }
}

/// What a consumer wants of a source, for an adapter to hold against the broker's settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wanted {
    /// The service. Where a broker can do that, each service gets every message of a source.
    pub service: Arc<str>,
    /// The most messages that are here at once, running or waiting.
    pub in_flight: usize,
    /// The longest timeout of its handlers, if any is set.
    pub timeout: Option<Duration>,
    /// The shortest retention of its handlers' claims.
    pub retention: Duration,
    /// How many attempts a message has before it becomes a dead letter.
    pub attempts: u32,
    /// Whether the source can work, for what only the adapter sees.
    pub health: SourceHealth,
}

impl Wanted {
    /// What a service wants of a source that nobody watches the health of: for receiving by hand, in tests.
    pub fn new(service: impl Into<Arc<str>>, in_flight: usize) -> Self {
        let Options { timeout, retention, retry, .. } = Options::default();
        let attempts = retry.most_attempts();
        Self { service: service.into(), in_flight, timeout, retention, attempts, health: SourceHealth::default() }
    }
}

/// The receiving half of a source.
pub trait Source: Send + 'static {
    /// What settles one delivery. Dropping it settles nothing: the lease runs out and the message comes again.
    type Token: Clone + Debug + Send + Sync + 'static;
    /// The settling half.
    type Settler: Settler<Token = Self::Token>;

    /// What this source can do, as it was found when it was opened.
    fn capabilities(&self) -> Capabilities;

    /// What is amiss with the broker's settings, beside what the capabilities tell: they are held against the consumer's options
    /// by the runtime.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// The settling half, which works while this half is receiving.
    fn settler(&self) -> Self::Settler;

    /// Waits for deliveries and returns between one and `free` of them.
    ///
    /// Must be cancel-safe: a call that is dropped loses no message for longer than its lease.
    fn receive(&mut self, free: usize) -> impl Future<Output = Result<Vec<Incoming<Self::Token>>, BrokerError>> + Send;
}

/// The settling half of a source.
pub trait Settler: Clone + Send + Sync + 'static {
    /// What settles one delivery.
    type Token: Clone + Debug + Send + Sync + 'static;

    /// Settles deliveries, and answers for each in order.
    fn settle(&self, settlements: Vec<Settlement<Self::Token>>) -> impl Future<Output = Vec<Settled>> + Send;

    /// Extends leases by their whole length again, and answers for each in order.
    fn extend(&self, tokens: &[&Self::Token]) -> impl Future<Output = Vec<Lease>> + Send;
}

/// A delivery: the message and the token that settles it.
#[derive(Debug)]
pub struct Incoming<T> {
    /// The message.
    pub received: Received,
    /// What settles it.
    pub token: T,
    /// When its lease had begun at the latest.
    pub leased_at: Instant,
}

/// The answer to a delivery. Only a [`Committed`] acknowledges.
///
/// ```compile_fail,E0308
/// # use inboxed_runtime::broker::Settlement;
/// fn acknowledge_without_proof(token: u64) -> Settlement<u64> {
///     Settlement::Ack(token)
/// }
/// ```
#[derive(Debug)]
pub enum Settlement<T> {
    /// Done, or done before: the broker may forget it.
    Ack(Committed<T>),
    /// Comes again, no sooner than after this delay.
    Retry(T, Duration),
    /// Kept as a dead letter in the inbox's database: the broker may forget it.
    DeadLettered(Committed<T>),
    /// Given back at once; nothing was tried.
    Release(T),
}

/// What may acknowledge a delivery of token `T`: its [`Committed`], and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no proof that a transaction with the message's key has committed, and an acknowledged message never comes again: a crash would lose its effect\n\nhelp: acknowledge with the `Committed` that the runtime made of the commit; without one answer `Settlement::Retry` or `Settlement::Release`",
    label = "not a proof"
)]
pub trait Proof<T> {
    /// The proof itself.
    fn committed(self) -> Committed<T>;
}

#[diagnostic::do_not_recommend]
impl<T> Proof<T> for Committed<T> {
    fn committed(self) -> Self {
        self
    }
}

impl<T> Settlement<T> {
    /// Acknowledges, by proof; anything else is told why it isn't one.
    pub fn acknowledge(proof: impl Proof<T>) -> Self {
        Self::Ack(proof.committed())
    }

    /// The token that this settles.
    pub(crate) fn token(&self) -> &T {
        match self {
            Self::Ack(proof) | Self::DeadLettered(proof) => proof.get(),
            Self::Retry(token, _) | Self::Release(token) => token,
        }
    }

    /// The same settlement around another shape of the same token.
    pub(crate) fn map<U>(self, shape: impl FnOnce(T) -> U) -> Settlement<U> {
        match self {
            Self::Ack(proof) => Settlement::Ack(proof.map(shape)),
            Self::Retry(token, delay) => Settlement::Retry(shape(token), delay),
            Self::DeadLettered(proof) => Settlement::DeadLettered(proof.map(shape)),
            Self::Release(token) => Settlement::Release(shape(token)),
        }
    }
}

/// What became of a settlement. None of these changes correctness: a lost one comes again and is a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The broker has confirmed it.
    Confirmed,
    /// It was sent; this broker doesn't confirm.
    Sent,
    /// The lease or the channel was gone.
    Lost,
}

/// What became of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It runs its whole length again.
    Held,
    /// The broker has taken the message back.
    Lost,
    /// The broker couldn't be asked, or didn't answer: it runs out when it would have.
    Unknown,
}

/// What a source can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent capability of the broker")]
pub struct Capabilities {
    /// Whether messages of one key come in order, one at a time.
    pub ordered: bool,
    /// Whether several groups of consumers each get every message.
    pub groups: bool,
    /// Whether messages survive the broker's restart.
    pub persistent: bool,
    /// How long a delivery stays with its consumer, if that is bounded.
    pub lease: Option<Duration>,
    /// Whether a lease can't be extended, so that a handler's timeout must end before it does.
    pub fixed_lease: bool,
    /// After how many deliveries the broker gives a message up, if it does.
    pub delivery_limit: Option<u32>,
    /// Whether deliveries are counted.
    pub delivery_count: bool,
    /// Whether a retry may be delayed.
    pub delayed_retry: bool,
    /// Whether several deliveries are acknowledged in one call.
    pub batch_ack: bool,
    /// Whether a late subscriber gets what was published before.
    pub replay: bool,
    /// Whether deliveries carry a position in an ordered log.
    pub position: bool,
    /// How long the broker keeps a message, if that is bounded.
    pub retention: Option<Duration>,
}

/// Why a broker can't be reached or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// It may come back: the consumer tries again with a growing delay, and its health is red meanwhile.
    #[error("the broker is out of reach: {0}")]
    Unreachable(#[source] BoxError),
    /// It will not come back by itself: the consumer ends with this error.
    #[error("the broker refuses: {0}")]
    Refused(#[source] BoxError),
    /// The source has ended, and no message will ever come.
    #[error("the source has ended")]
    Ended,
}
