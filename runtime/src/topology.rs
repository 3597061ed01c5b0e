//! What a broker must have before a consumer can run on it: queues, their dead-letter queues, streams, exchanges, bindings.
//!
//! [`Consumer::create_topology`] makes what isn't there, at a deployment or at each start: twice is once. What is there stays as
//! it is. If it differs from what would be made, that is an error which names the difference, and it isn't changed: a queue that
//! is changed under its other consumers loses their messages.
//!
//! Brokers differ in what a start itself makes. `nats` makes streams and durables at each opening, unless it was told not to;
//! `sqs` and `rabbitmq` make nothing, since a queue under a mistyped name is one that nobody publishes to.

use std::fmt;

use crate::broker::{BrokerError, Transport};
use crate::consumer::Consumer;
use crate::run_error::RunError;
use crate::store::Store;

/// Something that wasn't there and was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// The source that needs it.
    pub source: String,
    /// What was made, by its name at the broker: ``stream `orders` ``.
    pub what: String,
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for source `{}`", self.what, self.source)
    }
}

impl<Db: Store, S> Consumer<Db, S> {
    /// Makes what this consumer's sources need at the broker and isn't there, and answers what it made, in the order of the
    /// sources' names. See [`topology`](self).
    ///
    /// ```
    /// # extern crate inboxed_runtime as inboxed;
    /// # use inboxed::{Consumer, RunError, broker::Transport, store::Store};
    /// async fn deploy<Db: Store>(app: &Consumer<Db>, broker: &impl Transport) -> Result<(), RunError> {
    ///     for created in app.create_topology(broker).await? {
    ///         println!("{created}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NoHandler`]; [`RunError::Source`] if the broker can't be reached, or if something is there and differs from
    /// what would be made. What was made before that stays.
    pub async fn create_topology<T: Transport>(&self, transport: &T) -> Result<Vec<Created>, RunError> {
        if self.handlers.is_empty() {
            return Err(RunError::NoHandler);
        }
        let mut created = Vec::new();
        for source in self.sources() {
            let made = transport.create(&source, &self.wanted(&source)).await;
            let failed = |error: BrokerError| RunError::Source { name: source.to_string(), error };
            let of_source = |what| Created { source: source.to_string(), what };
            created.extend(made.map_err(failed)?.into_iter().map(of_source));
        }
        Ok(created)
    }
}
