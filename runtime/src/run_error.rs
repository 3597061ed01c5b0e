//! Why a consumer can't start, or ended.

use std::time::Duration;

use crate::broker::BrokerError;
use crate::store::StartError;

/// Why a consumer can't start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The inbox isn't fit.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is nothing to run.
    #[error("no handler is registered: call `.handle(source, handler)` first")]
    NoHandler,
    /// Two handlers take the same messages.
    #[error(
        "two handlers take the same messages of `{from}`: tell them apart with `on(source).header(…)` or `.field(…)`, \
         or give each a source of its own"
    )]
    Ambiguous {
        /// The source.
        from: String,
    },
    /// Two handlers would take each other's keys.
    #[error(
        "two handlers are named `{consumer}` and would take each other's messages for duplicates: set \
         `consumer = \"…\"` on one of them"
    )]
    SameName {
        /// The name.
        consumer: String,
    },
    /// No handler takes this source's messages.
    #[error("no handler is registered for `{0}`")]
    UnknownSource(String),
    /// Duplicates may come when their claims are gone.
    #[error(
        "claims of `{consumer}` are kept for {retention:?}, but a duplicate may come after {horizon:?}: raise the \
         retention, or lower what the broker and the producer keep"
    )]
    Retention {
        /// The handler.
        consumer: String,
        /// How long its claims are kept.
        retention: Duration,
        /// How late the last duplicate may come.
        horizon: Duration,
    },
    /// A source can't be used.
    #[error("source `{name}`: {error}")]
    Source {
        /// The source.
        name: String,
        /// What the broker said.
        #[source]
        error: BrokerError,
    },
    /// The task that handles the message ended without an answer; the message counts as not handled.
    #[error("the message's task ended without an answer; deliver it again")]
    NoAnswer,
}
