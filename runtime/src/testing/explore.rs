//! What is explored: a handler's consumer, its messages, and how their effects are counted.

use std::fmt;

use futures_util::future::BoxFuture;

use super::child;
use super::exploration::Exploration;
use super::report::{NotExact, Report};
use crate::consumer::Consumer;
use crate::deliver::Outcome;
use crate::message::Headers;
use crate::run_error::RunError;
use crate::store::Store;

/// A handler under exploration, by [`explore`].
pub struct Explore<Db: Store, S> {
    source: String,
    pub(super) database: String,
    consumer: Box<dyn Fn(String) -> BoxFuture<'static, Consumer<Db, S>> + Send + Sync>,
    message: Box<dyn Fn(u64) -> String + Send + Sync>,
    effects: Box<dyn Fn(u64) -> BoxFuture<'static, u64> + Send + Sync>,
    pub(super) key_fields: Vec<String>,
    headers: Headers,
    pub(super) in_children: bool,
    pub(super) test: Option<String>,
}

/// Explores the handler of a source: a crash at each [`FaultPoint`](super::FaultPoint), a lost acknowledgement, two
/// copies at once, a redelivery after each of them, two different messages, and a message lacking each field of the key.
///
/// `consumer` builds the consumer over the database, as a new process would; it is called for every scenario. Set
/// [`Explore::messages`] and [`Explore::effects`] too: without a count of its effects every message is lost.
#[cfg_attr(feature = "sqlite", doc = include_str!("explore.md"))]
pub fn explore<Db, S, F, C>(source: impl Into<String>, database: impl Into<String>, consumer: F) -> Explore<Db, S>
where
    Db: Store,
    F: Fn(String) -> C + Send + Sync + 'static,
    C: Future<Output = Consumer<Db, S>> + Send + 'static,
{
    Explore {
        source: source.into(),
        database: database.into(),
        consumer: Box::new(move |database| Box::pin(consumer(database))),
        message: Box::new(|n| format!(r#"{{"id":{n}}}"#)),
        effects: Box::new(|_| Box::pin(std::future::ready(0))),
        key_fields: Vec::new(),
        headers: Headers::default(),
        in_children: false,
        test: None,
    }
}

impl<Db: Store, S: Send + Sync + 'static> Explore<Db, S> {
    /// The body of the message with this number, from 1; `{"id":1}` by default. Different numbers are different
    /// messages.
    pub fn messages(mut self, message: impl Fn(u64) -> String + Send + Sync + 'static) -> Self {
        self.message = Box::new(message);
        self
    }

    /// Counts the effects of the message with this number, by the caller's own query.
    pub fn effects<F, C>(mut self, effects: F) -> Self
    where
        F: Fn(u64) -> C + Send + Sync + 'static,
        C: Future<Output = u64> + Send + 'static,
    {
        self.effects = Box::new(move |n| Box::pin(effects(n)));
        self
    }

    /// The JSON fields that the key is made of, `customer.id` inside `customer`; a message lacking one must be
    /// dead-lettered.
    pub fn key_fields<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.key_fields = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Headers of each message.
    pub fn headers(mut self, headers: impl Into<Headers>) -> Self {
        self.headers = headers.into();
        self
    }

    /// Crashes by `abort` in a child process too: the current test runs again there, up to this exploration, which must
    /// be its only one. The database must be one that another process can open by its URL.
    pub fn in_child_processes(mut self) -> Self {
        self.in_children = true;
        self
    }

    /// The test's name as the test runner has it, `module::name`, for the child processes. Needed only where the
    /// exploration doesn't run on the test's own thread, which has its name.
    pub fn test(mut self, name: impl Into<String>) -> Self {
        self.test = Some(name.into());
        self
    }

    /// Explores.
    ///
    /// # Errors
    /// [`NotExact`], with every scenario in which a message had more or less than one effect.
    pub async fn run(self) -> Result<Report, NotExact> {
        if let Some(crash) = child::Crash::of_this_process() {
            crash.run(&self).await;
        }
        Exploration::of(&self).run().await
    }

    /// The consumer of a new process.
    pub(super) async fn process(&self, database: String) -> Consumer<Db, S> {
        (self.consumer)(database).await
    }

    pub(super) fn message(&self, n: u64) -> String {
        (self.message)(n)
    }

    pub(super) async fn count(&self, n: u64) -> u64 {
        (self.effects)(n).await
    }

    pub(super) async fn deliver(&self, consumer: &Consumer<Db, S>, body: String) -> Result<Outcome, RunError> {
        consumer.deliver(&self.source, body, self.headers.clone()).await
    }
}

impl<Db: Store, S> fmt::Debug for Explore<Db, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explore").field("source", &self.source).finish_non_exhaustive()
    }
}
