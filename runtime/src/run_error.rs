//! Why a consumer can't start, or ended.

use crate::broker::BrokerError;
use crate::finding::Finding;
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
    /// The settings of the broker and of the consumer disagree: these are all the errors among what
    /// [`Consumer::check`](crate::Consumer::check) finds.
    #[error("messages would be lost, buried, run again or stand still: {}", crate::finding::list(.0))]
    Findings(Vec<Finding>),
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
