//! What a transport is set up with, and where a source is if that isn't plain from its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a source's messages are, if that isn't plain from its name.
///
/// ```
/// use inboxed_adapters::rabbitmq::Binding;
/// let legacy = Binding::queue("billing.in");
/// let some = Binding::exchange("events").key("orders.placed.#").key("orders.paid.#");
/// # drop((legacy, some));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Binding {
    pub(super) queue: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) keys: Vec<String>,
}

impl Binding {
    /// A queue of this name, whoever fills it.
    pub fn queue(name: impl Into<String>) -> Self {
        Self { queue: Some(name.into()), ..Self::default() }
    }

    /// A queue `SOURCE.SERVICE` that is bound to this exchange, which is made as a topic exchange unless it is there.
    pub fn exchange(name: impl Into<String>) -> Self {
        Self { exchange: Some(name.into()), ..Self::default() }
    }

    /// Binds the queue to the exchange by this key, once for each; by `#`, everything, if there is none.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) bindings: HashMap<Arc<str>, Binding>,
    pub(super) consumer_timeout: Duration,
    pub(super) delivery_limit: Option<u32>,
    pub(super) one_at_a_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bindings: HashMap::new(),
            // The server's own default since 3.8.17.
            consumer_timeout: Duration::from_mins(30),
            delivery_limit: None,
            one_at_a_time: false,
        }
    }
}
