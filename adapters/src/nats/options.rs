//! What a transport is set up with, and where a source is if that isn't plain from its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a source's messages are, if that isn't plain from its name.
///
/// ```
/// use inboxed_adapters::nats::Binding;
/// let placed = Binding::stream("EVENTS").subject("orders.placed").durable("fulfilment");
/// # drop(placed);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Binding {
    pub(super) stream: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) durable: Option<String>,
}

impl Binding {
    /// A stream that is there already.
    pub fn stream(name: impl Into<String>) -> Self {
        Self { stream: Some(name.into()), ..Self::default() }
    }

    /// Only the stream's messages of this subject, which may have wildcards; all of them without it.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The durable to consume through, instead of one named by the service. Consumers of one durable share its messages.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = Some(name.into());
        self
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) bindings: HashMap<Arc<str>, Binding>,
    pub(super) durable: Option<String>,
    pub(super) ack_wait: Duration,
    pub(super) max_ack_pending: Option<usize>,
    pub(super) max_age: Duration,
    pub(super) existing_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bindings: HashMap::new(),
            durable: None,
            ack_wait: Duration::from_secs(30),
            max_ack_pending: None,
            max_age: Duration::from_hours(14 * 24),
            existing_only: false,
        }
    }
}

impl Options {
    pub(super) fn binding(&self, source: &str) -> Binding {
        self.bindings.get(source).cloned().unwrap_or_default()
    }

    /// The cap on unacknowledged messages for a durable that is made here. Retries that wait count as such, so it is far
    /// above what one process takes.
    pub(super) fn cap(&self, in_flight: usize) -> i64 {
        let cap = self.max_ack_pending.unwrap_or_else(|| in_flight.saturating_mul(20).max(10_000));
        i64::try_from(cap).unwrap_or(i64::MAX)
    }
}
