//! A broker in the process: the embedded default, and a simulator of what brokers do to messages.
//!
//! Messages live in memory and end with the process. All else is as with a broker on a server: a delivery is leased to its
//! consumer and comes again if it isn't settled in time; deliveries are counted; retries are delayed; consumers of a group
//! compete, and each group gets every message. On request some deliveries come twice, some acknowledgements are lost, and
//! the order is shaken, by a seed that repeats the run. Everything is on tokio's clock, so that a test can pause it.
//!
//! ```
//! use inboxed_adapters::memory::{Memory, Message};
//!
//! let broker = Memory::builder().duplicates(0.05).lose_acks(0.05).seed(7).build();
//! broker.publish("orders", r#"{"order_id":1}"#);
//! broker.publish("orders", Message::new(r#"{"order_id":2}"#).header("type", "OrderPlaced"));
//! // app.run(broker.clone()).await?;
//! ```

mod group;
mod message;
mod options;
mod readers;
mod source;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use inboxed_runtime::broker::{BrokerError, Outgoing, Publisher, Transport, Wanted};

pub use self::message::Message;
pub use self::options::Builder;
use self::options::Options;
pub use self::source::{MemorySettler, MemorySource, MemoryToken};
use self::topic::Topic;

/// A broker in the process. Clones are the same broker; each opens sources for its group of consumers.
///
/// See the [module](self) for what it does.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    group: Arc<str>,
}

#[derive(Debug)]
struct Shared {
    options: Arc<Options>,
    topics: Mutex<HashMap<Arc<str>, Arc<Topic>>>,
}

/// What has become of a source's messages, as one group of consumers sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The messages published to the source.
    pub published: u64,
    /// Messages with no consumer at the moment: ready, delayed, or held behind another of their ordering key.
    pub waiting: usize,
    /// Deliveries with consumers, under a lease.
    pub in_flight: usize,
    /// How often a message was handed out.
    pub deliveries: u64,
    /// Deliveries that were acknowledged, copies included.
    pub acknowledged: u64,
    /// Acknowledgements that were lost on request.
    pub lost_acks: u64,
    /// Messages that were dropped at the end of the retention, unsettled.
    pub expired: u64,
}

impl Memory {
    /// A broker without faults, with leases of 30 s and a retention of 24 hours.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A broker with other options, and with faults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn with_options(options: Options) -> Self {
        let shared = Shared { options: Arc::new(options), topics: Mutex::default() };
        Self { shared: Arc::new(shared), group: Arc::default() }
    }

    /// The same broker for another group of consumers. Each group gets every message; a group that comes later starts with
    /// what the broker still keeps, unless it was built [`without_replay`](Builder::without_replay).
    ///
    /// ```
    /// use inboxed_adapters::memory::Memory;
    /// let broker = Memory::new();
    /// broker.publish("orders", "1");
    /// assert_eq!(broker.group("billing").counts("orders").waiting, 1);
    /// assert_eq!(broker.group("shipping").counts("orders").waiting, 1);
    /// ```
    pub fn group(&self, name: impl Into<Arc<str>>) -> Self {
        Self { shared: Arc::clone(&self.shared), group: name.into() }
    }

    /// Publishes a message to a source, which is made if it isn't there. Answers with the message's position in the source,
    /// from 1.
    pub fn publish(&self, source: &str, message: impl Into<Message>) -> u64 {
        self.topic(source).publish(message.into())
    }

    /// What has become of a source's messages, as this group sees it.
    pub fn counts(&self, source: &str) -> Counts {
        self.topic(source).counts(&self.group)
    }

    /// Waits until this group has settled every message of a source. It waits for ever if nobody does; bound it:
    ///
    /// ```
    /// use std::time::Duration;
    /// # use inboxed_adapters::memory::Memory;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let broker = Memory::new();
    /// tokio::time::timeout(Duration::from_secs(10), broker.settled("orders")).await?;
    /// # Ok::<_, tokio::time::error::Elapsed>(())
    /// # }).unwrap();
    /// ```
    pub async fn settled(&self, source: &str) {
        self.topic(source).settled(&self.group).await;
    }

    /// Lets the receivers of a source end, with [`BrokerError::Ended`], once their group has settled every message.
    pub fn end_when_settled(&self, source: &str) {
        self.topic(source).end_when_settled();
    }

    /// Opens a source to receive from it by hand, without a consumer.
    ///
    /// # Errors
    /// None.
    pub async fn open(&self, source: &str) -> Result<MemorySource, BrokerError> {
        Transport::open(self, source, &Wanted::new("", 1)).await
    }

    fn topic(&self, source: &str) -> Arc<Topic> {
        let mut topics = self.shared.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = topics.get(source) {
            return Arc::clone(topic);
        }
        let name = Arc::<str>::from(source);
        let topic = Arc::new(Topic::new(Arc::clone(&name), Arc::clone(&self.shared.options)));
        topics.insert(name, Arc::clone(&topic));
        topic
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for Memory {
    type Source = MemorySource;

    fn system(&self) -> &'static str {
        "memory"
    }

    async fn open(&self, name: &str, _: &Wanted) -> Result<MemorySource, BrokerError> {
        let topic = self.topic(name);
        topic.join(&self.group);
        Ok(MemorySource::new(topic, Arc::clone(&self.group)))
    }
}

/// [`Outgoing::group`] is the message's ordering key; of [`Outgoing::id`] this broker knows nothing, and drops no repetition.
impl Publisher for Memory {
    async fn publish(&self, to: &str, message: Outgoing) -> Result<(), BrokerError> {
        self.publish(to, Message::outgoing(message));
        Ok(())
    }
}
