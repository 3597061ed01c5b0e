//! Receiving: never more than there is room for, so that no message grows old here unseen.

use std::collections::VecDeque;
use std::sync::Arc;

use inboxed_runtime::Finding;
use inboxed_runtime::broker::{BrokerError, Capabilities, Incoming, Source};

use super::batch::Batches;
use super::error::SqsError;
use super::message::{GROUP, received};
use super::polls::{Brought, Polls};
use super::queue::Queue;
use super::settler::{SqsSettler, SqsToken};
use super::turns::Turns;

/// The receiving half of a source. Dropped, it gives back what it has received and not handed on.
#[derive(Debug)]
pub struct SqsSource {
    name: Arc<str>,
    queue: Queue,
    findings: Vec<Finding>,
    batches: Batches,
    polls: Polls,
    /// What has come and is to be handed on.
    ready: VecDeque<Incoming<SqsToken>>,
    turns: Turns,
}

impl SqsSource {
    pub(super) fn new(name: &str, queue: Queue, findings: Vec<Finding>, batches: Batches, polls: Polls) -> Self {
        Self { name: Arc::from(name), queue, findings, batches, polls, ready: VecDeque::new(), turns: Turns::default() }
    }

    /// Hands on what is here, as far as there is room.
    fn hand_on(&mut self, free: usize) -> Vec<Incoming<SqsToken>> {
        let mut batch = Vec::new();
        while batch.len() < free
            && let Some(mut incoming) = self.turns.next_due().or_else(|| self.ready.pop_front())
        {
            // While the consumer fetched nothing, its lease went on.
            incoming.leased_at = incoming.token.leased_at();
            if incoming.leased_at.elapsed() > self.queue.lease / 2 {
                incoming.token.give_back();
            } else {
                batch.push(incoming);
            }
        }
        batch
    }

    fn take(&mut self, brought: Brought) {
        // All of it together: a group's messages must not go back while those behind them stay.
        if brought.at.elapsed() > self.queue.lease / 3 {
            return self.polls.give_back(&brought);
        }
        let Brought { at, messages, .. } = brought;
        for message in messages {
            let handle = message.receipt_handle.clone().unwrap_or_default();
            let token = SqsToken::new(handle, self.batches.clone(), at, self.queue.lease);
            let incoming = Incoming { received: received(&self.name, message), token, leased_at: at };
            let group = incoming.received.headers.get(GROUP).filter(|_| self.queue.is_fifo()).map(str::to_owned);
            self.ready.extend(match group {
                Some(group) => self.turns.admit(&group, incoming),
                None => Some(incoming),
            });
        }
    }

    async fn next(&mut self, free: usize) -> Result<Vec<Incoming<SqsToken>>, SqsError> {
        loop {
            let batch = self.hand_on(free);
            if !batch.is_empty() {
                return Ok(batch);
            }
            // What waits for its turn needs no room of its own: it gets that of the message before it.
            self.polls.ask(free);
            tokio::select! {
                brought = self.polls.next() => self.take(brought?),
                () = self.turns.moved() => {}
            }
        }
    }
}

impl Source for SqsSource {
    type Settler = SqsSettler;
    type Token = SqsToken;

    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities()
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }

    fn settler(&self) -> SqsSettler {
        SqsSettler
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<SqsToken>>, BrokerError> {
        Ok(self.next(free).await?)
    }
}

impl Drop for SqsSource {
    fn drop(&mut self) {
        self.ready.iter().for_each(|incoming| incoming.token.give_back());
        self.turns.close();
    }
}
