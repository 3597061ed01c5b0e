//! What is published: the message with its options, and how the broker keeps it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use inboxed_runtime::broker::Outgoing;
use inboxed_runtime::{Headers, Received};
use tokio::time::Instant;

use super::group::after;

/// A message to publish: its bytes, and what a broker keeps beside them. Bytes and strings are messages without more.
///
/// ```
/// use inboxed_adapters::memory::{Memory, Message};
///
/// let broker = Memory::new();
/// broker.publish("orders", r#"{"order_id":1}"#);
/// broker.publish("orders", Message::new(r#"{"order_id":2}"#).header("type", "OrderPlaced").key("customer-7"));
/// assert_eq!(broker.counts("orders").waiting, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Message {
    body: Bytes,
    headers: Headers,
    key: Option<Arc<str>>,
    sent_at: Option<SystemTime>,
}

impl Message {
    /// A message with these bytes.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), headers: Headers::default(), key: None, sent_at: None }
    }

    pub(super) fn outgoing(Outgoing { body, headers, group, .. }: Outgoing) -> Self {
        Self { body, headers, key: group.map(Arc::from), sent_at: None }
    }

    /// Appends a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Sets the ordering key: messages of one key come one at a time, in the order they were published. Those without a
    /// key come in any order. It is not the key that makes two deliveries one message.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets when the message was sent, for tests of its age; by default the moment of publishing, by the machine's clock.
    pub fn sent_at(mut self, sent_at: SystemTime) -> Self {
        self.sent_at = Some(sent_at);
        self
    }
}

impl<B: Into<Bytes>> From<B> for Message {
    fn from(body: B) -> Self {
        Self::new(body)
    }
}

/// A message as the broker keeps it, shared by the log and every group.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its place in the order of publishing to its source, from 1.
    pub(super) position: u64,
    pub(super) key: Option<Arc<str>>,
    /// After this moment it is gone.
    pub(super) expires: Instant,
    body: Bytes,
    headers: Headers,
    sent_at: SystemTime,
}

impl Stored {
    pub(super) fn new(message: Message, position: u64, now: Instant, retention: Duration) -> Self {
        Self {
            position,
            key: message.key,
            expires: after(now, retention),
            body: message.body,
            headers: message.headers,
            sent_at: message.sent_at.unwrap_or_else(SystemTime::now),
        }
    }

    /// The message as its `delivery_count`th delivery hands it over.
    pub(super) fn received(&self, source: &Arc<str>, delivery_count: u32) -> Received {
        let mut received = Received::new(Arc::clone(source), self.body.clone());
        received.headers = self.headers.clone();
        received.sent_at = Some(self.sent_at);
        received.position = Some(self.position);
        received.delivery_count = delivery_count;
        received.redelivered = delivery_count > 1;
        received
    }
}
