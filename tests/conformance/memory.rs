//! The `memory` adapter under test.

use std::time::Duration;

use inboxed::broker::Capabilities;
use inboxed::memory::{Memory, Message};

use crate::adapter::{Adapter, Outgoing, Refused};

const RETENTION: Duration = Duration::from_hours(24);

/// A broker in this process.
pub(crate) struct InProcess {
    broker: Memory,
}

impl Adapter for InProcess {
    type Transport = Memory;

    const DUPLICATES: f64 = 0.0;
    const SHORT_LEASE: Duration = Duration::from_millis(600);
    const DATED: bool = true;
    const MAKES_WHEN_OPENED: bool = true;
    const CONFIRMS: bool = true;

    fn held_to() -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = true;
        capabilities.groups = true;
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        capabilities.replay = true;
        capabilities.position = true;
        capabilities.retention = Some(RETENTION);
        capabilities
    }

    async fn start(lease: Duration) -> Self {
        Self { broker: Memory::builder().lease(lease).retention(RETENTION).build() }
    }

    async fn start_own(_: Duration) -> Result<Self, Refused> {
        Err(Refused("memory ends with its process, and its messages with it"))
    }

    fn connect(&self, group: &str) -> Result<Memory, Refused> {
        Ok(self.broker.group(group))
    }

    async fn publish(&self, source: &str, outgoing: Outgoing) -> Result<(), Refused> {
        let Outgoing { body, headers, ordering_key, sent_at } = outgoing;
        let mut message = Message::new(body);
        for (name, value) in headers {
            message = message.header(name, value);
        }
        if let Some(key) = ordering_key {
            message = message.key(key);
        }
        if let Some(sent_at) = sent_at {
            message = message.sent_at(sent_at);
        }
        self.broker.publish(source, message);
        Ok(())
    }

    async fn backlog(&self, group: &str, source: &str) -> usize {
        let counts = self.broker.group(group).counts(source);
        counts.waiting + counts.in_flight
    }

    async fn stop_server(&self) -> Result<(), Refused> {
        Err(Refused("memory ends with its process, and its messages with it"))
    }

    async fn start_server(&self) -> Result<(), Refused> {
        Err(Refused("memory ends with its process, and its messages with it"))
    }
}
