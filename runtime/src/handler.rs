//! What the attribute makes of an `async fn`: a unit struct that implements [`Handler`].

use std::any::Any;
use std::ops::Deref;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use crate::decode::Decode;
use crate::error::{BoxError, Error};
use crate::key::{Key, KeyError};
use crate::message::{Delivery, Received};
use crate::store::Store;

/// A message handler over the database `Db`, with the consumer's state `S` and the decoder `D`.
///
/// Written by `#[idempotent]`, not by hand. It has no associated types, so that a public handler may take a private
/// message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for a consumer with a `{Db}` inbox and the state `{S}`\n\nhelp: a handler is an `async fn` under `#[inboxed::idempotent(key = \"…\")]` whose transaction parameter is the connection of the inbox's own database: `&mut SqliteConnection` for an `Inbox<Sqlite>`",
    label = "not a handler for this consumer"
)]
pub trait Handler<Db: Store, S, D>: Send + Sync + 'static {
    /// What the attribute says of the handler.
    const SPEC: Spec;

    /// Decodes the delivery and derives its identity. Repeatable: a message that runs again is decoded again.
    ///
    /// # Errors
    /// [`Refusal`], which dead-letters the message at once.
    fn prepare(&self, received: &Received, decoder: &D) -> Result<Prepared, Refusal>;

    /// Runs the body inside the open transaction.
    fn run<'a>(&'a self, message: AnyMessage, parts: Parts<'a, Db, S>) -> BoxFuture<'a, Result<(), Error>>;
}

/// A decoded message whose type only its own handler knows.
pub type AnyMessage = Box<dyn Any + Send>;

/// What the attribute says of a handler.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Spec {
    /// The second half of the key's namespace: `consumer = "…"`, else the function's name.
    pub consumer: &'static str,
    /// The key as written, by which a start notices that it has changed.
    pub key: &'static str,
    /// The key as it was written before: `previous_key = "…"`.
    pub previous_key: Option<&'static str>,
    /// How long the body may run: `timeout = "…"`.
    pub timeout: Option<Duration>,
    /// How long the claim is kept: `retention = "…"`.
    pub retention: Option<Duration>,
    /// What becomes of a message whose key is taken by another payload: `on_conflict = "…"`.
    pub on_conflict: OnConflict,
}

impl Spec {
    /// A handler with this namespace and key, all else by default.
    pub const fn new(consumer: &'static str, key: &'static str) -> Self {
        Self { consumer, key, previous_key: None, timeout: None, retention: None, on_conflict: OnConflict::Acknowledge }
    }

    /// Sets the key as it was written before.
    pub const fn previous_key(mut self, key: &'static str) -> Self {
        self.previous_key = Some(key);
        self
    }

    /// Sets how long the body may run.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets how long the claim is kept.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets what becomes of a key conflict.
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }
}

/// What becomes of a *key conflict*: a message whose key was committed with another payload. It never runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// Counted, logged as a warning and acknowledged like any duplicate.
    #[default]
    Acknowledge,
    /// Counted, logged and kept as a dead letter for somebody to look at.
    DeadLetter,
}

/// What makes two deliveries one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// A business key, and the same message's key under the template before, which is claimed with it.
    Key {
        /// The key.
        key: Key,
        /// The key by the template before, if it differs.
        previous: Option<Key>,
    },
}

impl Identity {
    /// Identity by a business key.
    pub fn key(key: Key) -> Self {
        Self::Key { key, previous: None }
    }

    /// Identity by a business key, and by the key that the message had under the template before.
    ///
    /// A message that had no key then (a part of it is empty) can't have been claimed under it.
    pub fn with_previous(key: Key, previous: Result<Key, KeyError>) -> Self {
        let previous = previous.ok().filter(|previous| *previous != key);
        Self::Key { key, previous }
    }

    /// The key that names the message.
    pub fn name(&self) -> &Key {
        let Self::Key { key, .. } = self;
        key
    }
}

/// A decoded message and its identity.
#[derive(Debug)]
pub struct Prepared {
    /// What makes two deliveries this message.
    pub identity: Identity,
    /// Eight bytes of the payload's SHA-256, by which a duplicate is told from a key conflict.
    pub payload: i64,
    /// The message.
    pub message: AnyMessage,
}

/// Why a delivery can't be prepared. No retry can cure it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes aren't a message of the handler's type.
    #[error("undecodable: {0}")]
    Undecodable(#[source] BoxError),
    /// The message has no usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What a handler's parameters are taken from, each at most once.
#[derive(Debug)]
pub struct Parts<'a, Db: Store, S> {
    pub(crate) connection: Option<&'a mut Db::Connection>,
    pub(crate) key: &'a Key,
    pub(crate) delivery: &'a Delivery,
    pub(crate) state: &'a S,
}

/// A handler's parameter, beside its message.
#[diagnostic::on_unimplemented(
    message = "a handler can't take a parameter of type `{Self}`\n\nhelp: beside its message a handler takes, in any order: the inbox's transaction (`&mut SqliteConnection`), `State<T>` for what the consumer was given by `.state(…)`, `&Key` and `&Delivery`",
    label = "not a handler's parameter"
)]
pub trait FromParts<'a, Db: Store, S>: Sized {
    /// Takes the parameter out of the parts.
    ///
    /// # Errors
    /// If it was taken before, which the attribute rules out.
    fn from_parts(parts: &mut Parts<'a, Db, S>) -> Result<Self, Error>;
}

#[diagnostic::do_not_recommend]
impl<'a, Db: Store, S> FromParts<'a, Db, S> for &'a Key {
    fn from_parts(parts: &mut Parts<'a, Db, S>) -> Result<Self, Error> {
        Ok(parts.key)
    }
}

#[diagnostic::do_not_recommend]
impl<'a, Db: Store, S> FromParts<'a, Db, S> for &'a Delivery {
    fn from_parts(parts: &mut Parts<'a, Db, S>) -> Result<Self, Error> {
        Ok(parts.delivery)
    }
}

impl<'a, Db: Store, S, T: FromRef<S>> FromParts<'a, Db, S> for State<T> {
    fn from_parts(parts: &mut Parts<'a, Db, S>) -> Result<Self, Error> {
        Ok(State(T::from_ref(parts.state)))
    }
}

/// A part of the consumer's state, as a handler's parameter.
///
/// ```
/// # use inboxed_runtime::State;
/// #[derive(Clone)]
/// struct Rates { euro: f64 }
/// fn body(State(rates): State<Rates>) -> f64 { rates.euro }
/// assert!(body(State(Rates { euro: 1.1 })) > 1.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// How a handler's `State<T>` comes out of the consumer's state: `T` itself, or a part of it.
///
/// ```
/// use inboxed_runtime::FromRef;
///
/// #[derive(Clone)]
/// struct Rates;
/// #[derive(Clone)]
/// struct App { rates: Rates }
///
/// impl FromRef<App> for Rates {
///     fn from_ref(app: &App) -> Self {
///         app.rates.clone()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the consumer's state is `{S}`, and no `{Self}` comes out of it\n\nhelp: give the consumer that state before the handler, `.state(…)`, or implement `inboxed::FromRef<{S}>` for `{Self}`"
)]
pub trait FromRef<S> {
    /// Clones the part out of the state.
    fn from_ref(state: &S) -> Self;
}

impl<T: Clone> FromRef<T> for T {
    fn from_ref(state: &T) -> Self {
        state.clone()
    }
}

/// The database whose transaction a connection carries.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the connection of an inbox's database, and an effect commits together with its claim only where the claim is\n\nhelp: take the driver's own connection to the inbox's database, `tx: &mut sqlx::SqliteConnection`; each database is behind a feature of `inboxed` of its name",
    label = "not an inbox's connection"
)]
pub trait InboxConnection {
    /// The database.
    type Db: Store<Connection = Self>;
}

/// What a handler's body may return: `Result<(), E>` with `E` a standard error, `anyhow::Error`, `String` or
/// `inboxed::Error`.
#[diagnostic::on_unimplemented(
    message = "a handler can't return `{Self}`: nobody reads its value, and only a failure can be told apart\n\nhelp: return `inboxed::Result<()>`, or any `Result<(), E>` with `E` a standard error, `anyhow::Error` or `String`; write what the body computes through its transaction",
    label = "not a handler's result"
)]
pub trait BodyResult {
    /// The body's result under the runtime's error.
    ///
    /// # Errors
    /// The body's own.
    fn into_result(self) -> Result<(), Error>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Error>> BodyResult for Result<(), E> {
    fn into_result(self) -> Result<(), Error> {
        self.map_err(Into::into)
    }
}

/// A message's contract, shared by its producer and its consumers: `#[derive(Event)]` with `#[event(key = "…")]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no key: without one a redelivered message can't be told from a new one\n\nhelp: name what makes two deliveries the same message: `#[idempotent(key = \"order:{{order_id}}\")]` on the handler, or `#[derive(inboxed::Event)] #[event(key = \"…\")]` on the message",
    label = "no key for this message"
)]
pub trait Event {
    /// The key as written.
    const KEY: &'static str;

    /// The message's key.
    ///
    /// # Errors
    /// [`KeyError`] if a part is empty.
    fn key(&self) -> Result<Key, KeyError>;
}

/// Decodes the delivery and derives its identity: the attribute's [`Handler::prepare`].
///
/// # Errors
/// [`Refusal`], as the trait's method.
pub fn prepare<M, D>(
    received: &Received,
    decoder: &D,
    identity: impl FnOnce(&M) -> Result<Identity, KeyError>,
) -> Result<Prepared, Refusal>
where
    M: Send + 'static,
    D: Decode<M>,
{
    let message = decoder.decode(received).map_err(Refusal::Undecodable)?;
    let payload = payload_hash(&decoder.payload(received));
    Ok(Prepared { identity: identity(&message)?, payload, message: Box::new(message) })
}

fn payload_hash(payload: &[u8]) -> i64 {
    let digest = Sha256::digest(payload);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// The message as its own handler knows it.
///
/// # Errors
/// If it is another handler's message, which would be a fault of the runtime.
pub fn message<M: 'static>(message: AnyMessage) -> Result<M, Error> {
    message.downcast().map(|message| *message).map_err(|_| Error::from("the message belongs to another handler"))
}

/// The open transaction, for the handler's one transaction parameter.
///
/// # Errors
/// If it was taken before, which the attribute rules out.
pub fn transaction<'a, Db: Store, S>(parts: &mut Parts<'a, Db, S>) -> Result<&'a mut Db::Connection, Error> {
    parts.connection.take().ok_or_else(|| Error::from("the handler took its transaction twice"))
}

/// The body's future, boxed. The attribute calls it at the handler's name.
pub fn body<'a, F>(future: F) -> BoxFuture<'a, Result<(), Error>>
where
    F: Future<Output = Result<(), Error>> + Send + 'a, // help: drop what isn't `Send` before the `.await`
{
    Box::pin(future)
}
