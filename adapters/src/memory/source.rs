//! Receiving from a source, and settling what was received.

use std::sync::Arc;
use std::time::Duration;

use inboxed_runtime::broker::{BrokerError, Capabilities, Incoming, Lease, Settled, Settlement, Settler, Source};

use super::group::Answer;
use super::topic::Topic;

/// The receiving half of a source, for one consumer of a group. Several compete for the group's messages.
#[derive(Debug)]
pub struct MemorySource(MemorySettler);

/// The settling half of a source. It works as long as the broker, whether or not the receiving half is still there.
#[derive(Clone, Debug)]
pub struct MemorySettler {
    topic: Arc<Topic>,
    group: Arc<str>,
}

/// What settles one delivery.
#[derive(Clone, Debug)]
pub struct MemoryToken(pub(super) u64);

impl MemorySource {
    pub(super) fn new(topic: Arc<Topic>, group: Arc<str>) -> Self {
        Self(MemorySettler { topic, group })
    }
}

impl Source for MemorySource {
    type Settler = MemorySettler;
    type Token = MemoryToken;

    fn capabilities(&self) -> Capabilities {
        self.0.topic.options.capabilities()
    }

    fn settler(&self) -> MemorySettler {
        self.0.clone()
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<MemoryToken>>, BrokerError> {
        self.0.topic.receive(&self.0.group, free).await
    }
}

impl MemorySettler {
    /// Acknowledges as a client without an inbox does: on nobody's proof. It is here to show what that loses or repeats,
    /// beside a consumer that can't.
    ///
    /// ```
    /// use inboxed_adapters::memory::Memory;
    /// use inboxed_runtime::broker::Source;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let broker = Memory::new();
    /// broker.publish("orders", r#"{"order_id":1}"#);
    ///
    /// let mut source = broker.open("orders").await?;
    /// for delivery in source.receive(10).await? {
    ///     source.settler().acknowledge_without_proof(delivery.token);
    /// }
    /// assert_eq!(broker.counts("orders").acknowledged, 1);
    /// # Ok::<_, inboxed_runtime::broker::BrokerError>(())
    /// # }).unwrap();
    /// ```
    pub fn acknowledge_without_proof(&self, token: MemoryToken) -> Settled {
        let settled = self.topic.settle(&self.group, vec![(token, Answer::Acknowledge)]);
        settled.into_iter().next().unwrap_or(Settled::Lost)
    }
}

impl Settler for MemorySettler {
    type Token = MemoryToken;

    async fn settle(&self, settlements: Vec<Settlement<MemoryToken>>) -> Vec<Settled> {
        let answers = settlements.into_iter().map(|settlement| match settlement {
            Settlement::Ack(proof) | Settlement::DeadLettered(proof) => (proof.into_token(), Answer::Acknowledge),
            Settlement::Retry(token, delay) => (token, Answer::Again(delay)),
            Settlement::Release(token) => (token, Answer::Again(Duration::ZERO)),
        });
        self.topic.settle(&self.group, answers.collect())
    }

    async fn extend(&self, tokens: &[&MemoryToken]) -> Vec<Lease> {
        self.topic.extend(&self.group, tokens)
    }
}
