//! What a transport is set up with, and where a source's queue is if that isn't plain from its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a source's queue is, if it doesn't bear the source's name.
///
/// ```
/// use inboxed_adapters::sqs::Binding;
/// let orders = Binding::queue("prod-orders");
/// let invoices = Binding::url("https://sqs.eu-central-1.amazonaws.com/123456789012/invoices");
/// # drop((orders, invoices));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Binding(pub(super) Place);

#[derive(Clone, Debug)]
pub(super) enum Place {
    Queue(String),
    Url(String),
}

impl Binding {
    /// The queue of this name, in the client's account and region.
    pub fn queue(name: impl Into<String>) -> Self {
        Self(Place::Queue(name.into()))
    }

    /// The queue at this URL, of another account for one. It is never made here.
    pub fn url(url: impl Into<String>) -> Self {
        Self(Place::Url(url.into()))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) bindings: HashMap<Arc<str>, Binding>,
    pub(super) wait: Duration,
    pub(super) visibility_timeout: Duration,
    pub(super) retention: Duration,
    pub(super) dead_letter_retention: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bindings: HashMap::new(),
            wait: Duration::from_secs(20),
            visibility_timeout: Duration::from_secs(30),
            retention: Duration::from_hours(4 * 24),
            dead_letter_retention: Duration::from_hours(14 * 24),
        }
    }
}

impl Options {
    /// Where the queue of a source is.
    pub(super) fn place(&self, source: &str) -> Place {
        self.bindings.get(source).map_or_else(|| Place::Queue(source.to_owned()), |binding| binding.0.clone())
    }
}
