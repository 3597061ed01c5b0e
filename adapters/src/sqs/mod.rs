//! Amazon SQS, standard and FIFO queues.
//!
//! | of a broker | here |
//! |---|---|
//! | source | a queue: `.handle("orders", …)` is queue `orders`, or what [`Sqs::source`] says |
//! | headers | the message attributes, in the order of their names; and `MessageGroupId`, where the message has a group |
//! | lease | the queue's visibility timeout; extended by its whole length, up to twelve hours from when a message was received |
//! | acknowledgement | deletion, up to ten to a request; what isn't confirmed counts as lost, and comes again as a duplicate |
//! | retry | invisible for the delay, in whole seconds, twelve hours at most |
//! | delivery count | `ApproximateReceiveCount` |
//! | order | in a FIFO queue within a group: a consumer gets one message of it at a time, and one that fails holds back its group alone |
//! | dead letters | in the inbox's database. The queue's own dead-letter queue is for what no consumer ever settles |
//!
//! A queue is read when it is opened, and refused or warned about if messages would be lost or repeated. It is never made then:
//! [`Consumer::create_topology`](inboxed_runtime::Consumer) makes it, with a dead-letter queue `NAME-dead`.
//!
//! Bodies that SNS or EventBridge have put into an envelope are opened where a handler is registered with [`Sns`] or
//! [`EventBridge`], and nowhere else.
//!
//! ```no_run
//! use inboxed_adapters::sqs::{Binding, Sqs};
//!
//! # async fn connect(client: aws_sdk_sqs::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Sqs::from_client(&client); // credentials, region, endpoint and HTTP client as your `SdkConfig` has them
//! let broker = broker.source("orders", Binding::queue("prod-orders"));
//! // app.run(broker).await?;
//!
//! let emulator = Sqs::new("sqs://test:test@127.0.0.1:4566")?;
//! # drop((broker, emulator));
//! # Ok(())
//! # }
//! ```

mod address;
mod batch;
mod clients;
mod create;
mod envelope;
mod error;
mod findings;
mod message;
mod options;
mod polls;
mod publisher;
mod queue;
mod settler;
mod source;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use inboxed_runtime::broker::{BrokerError, Transport, Wanted};

use self::batch::Batches;
pub use self::envelope::{EventBridge, Sns};
pub use self::error::SqsError;
pub use self::options::Binding;
use self::options::Options;
use self::polls::Polls;
pub use self::publisher::Publisher;
use self::queue::Queue;
pub use self::settler::{SqsSettler, SqsToken};
pub use self::source::SqsSource;

/// A poll that doesn't wait would be repeated without a pause, and each is paid for.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The longest that a poll can wait at the service.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Amazon SQS. See the [module](self) for what it does.
#[derive(Clone, Debug)]
pub struct Sqs {
    client: Client,
    polls: Client,
    options: Options,
}

impl Sqs {
    /// The queues that this client of the SDK reaches, with its credentials, region, endpoint, HTTP client and retries.
    ///
    /// Its timeouts aren't taken for polls: they wait for longer than a call. Without timeouts of its own, a call ends after 15 s.
    pub fn from_client(client: &Client) -> Self {
        let options = Options::default();
        Self { polls: clients::polling(client, options.wait), client: clients::calling(client), options }
    }

    /// The queues of a URL. Nothing is asked of the service yet.
    ///
    /// `sqs://` is AWS, by https (feature `sqs-tls`), in the region of `AWS_REGION` or of `sqs://?region=eu-central-1`, and with the key of `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. For credentials that are renewed give a client to [`Sqs::from_client`].
    /// `sqs://KEY:SECRET@127.0.0.1:4566` is an emulator, by plain http. What one doesn't say comes from the
    /// environment.
    ///
    /// # Errors
    /// [`SqsError::Url`], [`SqsError::Environment`], [`SqsError::Tls`].
    pub fn new(url: &str) -> Result<Self, SqsError> {
        let address = address::parse(url, |name| std::env::var(name).ok())?;
        Ok(Self::from_client(&clients::of(&address)?))
    }

    /// Says which queue a source is, if it doesn't bear the source's name.
    pub fn source(mut self, name: impl Into<Arc<str>>, binding: Binding) -> Self {
        self.options.bindings.insert(name.into(), binding);
        self
    }

    /// How long a poll waits at the service for messages: 20 s by default, which is the most; whole
    /// seconds, one at least.
    ///
    /// When a consumer ends, a poll that is out goes on until something comes, and gives that back; a process that ends
    /// before may take messages with it for a visibility timeout.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait.clamp(SHORTEST_WAIT, LONGEST_WAIT);
        self.polls = clients::polling(&self.client, self.options.wait);
        self
    }

    /// The visibility timeout of the queues that are made here: 30 s by default; whole seconds. It is the lease, and is
    /// extended while a message is here.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.options.visibility_timeout = timeout;
        self
    }

    /// How long the queues that are made here keep a message: 4 days by default; from a minute to 14 days.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.retention = retention;
        self
    }

    /// How long the dead-letter queues that are made here keep a message: 14 days by default, which is the most.
    pub fn dead_letter_retention(mut self, retention: Duration) -> Self {
        self.options.dead_letter_retention = retention;
        self
    }
}

impl Transport for Sqs {
    type Source = SqsSource;

    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<SqsSource, BrokerError> {
        let queue = Queue::read(&self.client, &self.options.place(name)).await?;
        let batches = Batches::start(&self.client, &queue.name, &queue.url);
        let polls = Polls::new(self.polls.clone(), &queue, self.options.wait, batches.clone());
        let findings = queue.findings(wanted.attempts);
        Ok(SqsSource::new(name, queue, findings, batches, polls))
    }

    async fn create(&self, name: &str, _: &Wanted) -> Result<Vec<String>, BrokerError> {
        Ok(create::create(&self.client, &self.options.place(name), &self.options).await?)
    }
}
