//! A transport that notes what the broker hands out and what it answers, whatever adapter is inside.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use inboxed::broker::{
    BrokerError, Capabilities, Incoming, Lease, Settled, Settlement, Settler, Source, Transport, Wanted,
};
use inboxed::{Finding, Received};
use tokio::time::Instant;

/// What was seen of all consumers of one trial.
#[derive(Debug, Default)]
pub(crate) struct Log {
    opened: AtomicUsize,
    deliveries: Mutex<Vec<Seen>>,
    answers: Mutex<Vec<(Answer, Settled)>>,
}

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) received: Received,
    /// How many came in the same fetch.
    pub(crate) batch: usize,
}

/// A settlement's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ack,
    Retry,
    DeadLettered,
    Release,
}

impl Log {
    /// How many consumers have opened a source.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Acquire)
    }

    pub(crate) fn deliveries(&self) -> Vec<Seen> {
        self.deliveries.lock().unwrap().clone()
    }

    /// The deliveries of the message with this body.
    pub(crate) fn deliveries_of(&self, body: &[u8]) -> Vec<Seen> {
        self.deliveries().into_iter().filter(|seen| seen.received.body == body).collect()
    }

    pub(crate) fn delivered(&self) -> usize {
        self.deliveries.lock().unwrap().len()
    }

    pub(crate) fn distinct(&self) -> usize {
        self.deliveries.lock().unwrap().iter().map(|seen| &seen.received.body).collect::<BTreeSet<_>>().len()
    }

    /// How many deliveries were answered so, and what the broker said to it.
    pub(crate) fn answered(&self, answer: Answer, settled: Settled) -> usize {
        self.answers.lock().unwrap().iter().filter(|known| **known == (answer, settled)).count()
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.answered(Answer::Ack, Settled::Confirmed) + self.answered(Answer::Ack, Settled::Sent)
    }
}

/// The adapter's transport, watched.
pub(crate) struct Watched<T> {
    pub(crate) inner: T,
    pub(crate) log: Arc<Log>,
}

impl<T: Transport> Transport for Watched<T> {
    type Source = WatchedSource<T::Source>;

    fn system(&self) -> &'static str {
        self.inner.system()
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<Self::Source, BrokerError> {
        let inner = self.inner.open(name, wanted).await?;
        self.log.opened.fetch_add(1, Ordering::AcqRel);
        Ok(WatchedSource { inner, log: Arc::clone(&self.log) })
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        self.inner.create(name, wanted).await
    }
}

pub(crate) struct WatchedSource<S> {
    inner: S,
    log: Arc<Log>,
}

impl<S: Source> Source for WatchedSource<S> {
    type Settler = WatchedSettler<S::Settler>;
    type Token = S::Token;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn findings(&self) -> Vec<Finding> {
        self.inner.findings()
    }

    fn settler(&self) -> Self::Settler {
        WatchedSettler { inner: self.inner.settler(), log: Arc::clone(&self.log) }
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<S::Token>>, BrokerError> {
        let incoming = self.inner.receive(free).await?;
        assert!((1..=free).contains(&incoming.len()), "{} deliveries for {free} free places", incoming.len());
        let (at, batch) = (Instant::now(), incoming.len());
        let seen = incoming.iter().map(|incoming| Seen { at, received: incoming.received.clone(), batch });
        self.log.deliveries.lock().unwrap().extend(seen);
        Ok(incoming)
    }
}

#[derive(Clone)]
pub(crate) struct WatchedSettler<S> {
    inner: S,
    log: Arc<Log>,
}

impl<S: Settler> Settler for WatchedSettler<S> {
    type Token = S::Token;

    async fn settle(&self, settlements: Vec<Settlement<S::Token>>) -> Vec<Settled> {
        let answers = settlements.iter().map(|settlement| match settlement {
            Settlement::Ack(_) => Answer::Ack,
            Settlement::Retry(..) => Answer::Retry,
            Settlement::DeadLettered(_) => Answer::DeadLettered,
            Settlement::Release(_) => Answer::Release,
        });
        let answers = answers.collect::<Vec<_>>();
        let settled = self.inner.settle(settlements).await;
        assert_eq!(answers.len(), settled.len(), "an answer for each settlement");
        self.log.answers.lock().unwrap().extend(answers.into_iter().zip(settled.iter().copied()));
        settled
    }

    async fn extend(&self, tokens: &[&S::Token]) -> Vec<Lease> {
        self.inner.extend(tokens).await
    }
}
