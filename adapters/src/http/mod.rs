//! Webhooks: a `tower` service that handles each request in the one order, and answers when its outcome is durable.
//!
//! A status is sent after the commit that it speaks of: the effect's, or that of a dead letter with the exact bytes. A client
//! that goes away doesn't end the work: its next copy is a duplicate.

mod answer;
mod head;
mod service;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ::http::StatusCode;
use ::http::request::Parts;
use inboxed_runtime::store::Store;
use inboxed_runtime::{Consumer, Delivered, Health, Received, RunError, Shutdown};
use tokio::sync::Semaphore;

/// The most bytes of a body that are read by default.
const BODY_LIMIT: usize = 1024 * 1024;

/// How many requests are handled at once by default; each may hold a body.
const CONCURRENCY: usize = 256;

/// A `tower` service that takes one source's messages by POST: `Router::new().route_service("/hooks/orders", webhook)`.
///
/// See the [module](self) for its answers. What it doesn't do: a time limit on reading a request is the server's business,
/// and so is TLS.
///
/// **Without [`verify`](Self::verify), whoever reaches it can send messages**, and fill the table of dead letters by bytes
/// that are none.
///
/// A consumer that only takes webhooks is run by [`run_without_broker`](Consumer::run_without_broker), which prunes the
/// inbox, and at a shutdown waits for what is being handled.
#[derive(Clone)]
pub struct Webhook(Arc<Hook>);

type Verify = dyn Fn(&Parts, &[u8]) -> bool + Send + Sync;

#[derive(Clone)]
struct Hook {
    source: Arc<str>,
    consumer: Arc<dyn Deliver>,
    health: Health,
    shutdown: Shutdown,
    verify: Option<Arc<Verify>>,
    body_limit: usize,
    places: Arc<Semaphore>,
    without: Vec<String>,
    dead_letters_as: Option<StatusCode>,
}

impl Webhook {
    /// Takes messages of this source.
    ///
    /// # Errors
    /// [`RunError::UnknownSource`] if the consumer has no handler for it.
    pub fn new<Db, S>(consumer: Arc<Consumer<Db, S>>, source: &str) -> Result<Self, RunError>
    where
        Db: Store,
        S: Send + Sync + 'static,
    {
        if !consumer.takes(source) {
            return Err(RunError::UnknownSource(source.to_owned()));
        }
        Ok(Self(Arc::new(Hook {
            source: source.into(),
            health: consumer.health(),
            shutdown: consumer.shutdown(),
            consumer,
            verify: None,
            body_limit: BODY_LIMIT,
            places: Arc::new(Semaphore::new(CONCURRENCY)),
            without: Vec::new(),
            dead_letters_as: None,
        })))
    }

    /// Asks this of each request before anything is made of it: the whole head and the exact bytes, as they were signed.
    /// One that it refuses is answered 401, and nothing of it is stored.
    ///
    /// Compare signatures in constant time: by `Mac::verify_slice` of the crate `hmac`, not by `==`.
    pub fn verify(self, genuine: impl Fn(&Parts, &[u8]) -> bool + Send + Sync + 'static) -> Self {
        self.with(|hook| hook.verify = Some(Arc::new(genuine)))
    }

    /// The most bytes of a body; 1 MiB by default. A longer one is answered 413, and nothing of it is stored.
    pub fn body_limit(self, bytes: usize) -> Self {
        self.with(|hook| hook.body_limit = bytes)
    }

    /// How many requests are here at once, from before their bodies are read; 256 by default. Further ones are answered 503.
    pub fn concurrency(self, requests: usize) -> Self {
        self.with(|hook| hook.places = Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Keeps a header out of the message, and so out of dead letters: one that holds a secret, as `X-Gitlab-Token` does, or
    /// that each attempt has anew, since letters of the same bytes and headers are one.
    ///
    /// `Authorization`, `Cookie`, values marked as sensitive and what concerns the connection alone are never in it.
    pub fn without_header(self, name: &str) -> Self {
        self.with(|hook| hook.without.push(name.to_ascii_lowercase()))
    }

    /// The status of all dead letters, for senders that try again, or turn a hook off, at anything but 2xx.
    pub fn dead_letters_as(self, status: StatusCode) -> Self {
        self.with(|hook| hook.dead_letters_as = Some(status))
    }

    fn with(mut self, change: impl FnOnce(&mut Hook)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("source", &self.0.source)
            .field("body_limit", &self.0.body_limit)
            .field("verifies", &self.0.verify.is_some())
            .finish_non_exhaustive()
    }
}

type Delivering = Pin<Box<dyn Future<Output = Result<Delivered, RunError>> + Send>>;

/// A consumer without its types.
trait Deliver: Send + Sync {
    fn deliver(self: Arc<Self>, received: Received) -> Delivering;
}

impl<Db, S> Deliver for Consumer<Db, S>
where
    Db: Store,
    S: Send + Sync + 'static,
{
    fn deliver(self: Arc<Self>, received: Received) -> Delivering {
        Box::pin(async move { self.deliver_received(received).await })
    }
}
