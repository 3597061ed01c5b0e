//! Which handler a delivery belongs to: by its source, and on a shared source by its type.

use std::any::TypeId;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::Error;
use crate::handler::{AnyMessage, Handler, Parts, Prepared, Refusal, Spec};
use crate::key::Key;
use crate::message::{Delivery, Received};
use crate::panic;
use crate::store::{ConsumerId, Store};

/// Where a handler's messages come from: a source's name, or [`on`] a source those of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub(crate) source: Arc<str>,
    pub(crate) only: Option<Only>,
}

/// One type of a source's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    Header { name: String, value: String },
    Field { name: String, value: String },
}

/// A source whose messages are told apart by their type.
///
/// ```
/// use inboxed_runtime::on;
/// let placed = on("orders").header("type", "OrderPlaced");
/// let paid = on("orders").field("type", "OrderPaid");
/// # assert_ne!(placed, paid);
/// ```
pub fn on(source: impl Into<Arc<str>>) -> Route {
    Route { source: source.into(), only: None }
}

impl Route {
    /// Only the messages whose header has this value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.only = Some(Only::Header { name: name.into(), value: value.into() });
        self
    }

    /// Only the JSON messages whose top-level field has this text.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.only = Some(Only::Field { name: name.into(), value: value.into() });
        self
    }

    fn takes(&self, received: &Received, body: &mut Body) -> bool {
        if self.source != received.source {
            return false;
        }
        match &self.only {
            None => true,
            Some(Only::Header { name, value }) => received.headers.get(name) == Some(value),
            Some(Only::Field { name, value }) => body
                .parsed(received)
                .is_some_and(|body| body.get(name).and_then(serde_json::Value::as_str) == Some(value)),
        }
    }
}

/// A body parsed as JSON, at most once and only if a route asks for a field.
#[derive(Default)]
struct Body(Option<Result<serde_json::Value, serde_json::Error>>);

impl Body {
    fn parsed(&mut self, received: &Received) -> Option<&serde_json::Value> {
        self.0.get_or_insert_with(|| serde_json::from_slice(&received.body)).as_ref().ok()
    }
}

impl From<&str> for Route {
    fn from(source: &str) -> Self {
        on(source)
    }
}

impl From<String> for Route {
    fn from(source: String) -> Self {
        on(source)
    }
}

/// A handler with its state and decoder, without their types.
pub(crate) trait AnyHandler<Db: Store>: Send + Sync {
    fn spec(&self) -> Spec;

    /// Which function it is: two of one name are two handlers.
    fn function(&self) -> TypeId;

    fn prepare(&self, received: &Received) -> Result<Prepared, Refusal>;

    fn run<'a>(
        &'a self,
        message: AnyMessage,
        connection: &'a mut Db::Connection,
        key: &'a Key,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<(), Error>>;
}

/// A handler, the state of the consumer that it was registered with, and its decoder.
pub(crate) struct With<H, S, D> {
    pub handler: H,
    pub state: S,
    pub decoder: D,
}

impl<Db, H, S, D> AnyHandler<Db> for With<H, S, D>
where
    Db: Store,
    H: Handler<Db, S, D>,
    S: Send + Sync + 'static,
    D: Send + Sync + 'static,
{
    fn spec(&self) -> Spec {
        H::SPEC
    }

    fn function(&self) -> TypeId {
        TypeId::of::<H>()
    }

    fn prepare(&self, received: &Received) -> Result<Prepared, Refusal> {
        let prepared = panic::guard(|| self.handler.prepare(received, &self.decoder));
        prepared
            .unwrap_or_else(|text| Err(Refusal::Undecodable(format!("the decoder or the key panicked: {text}").into())))
    }

    fn run<'a>(
        &'a self,
        message: AnyMessage,
        connection: &'a mut Db::Connection,
        key: &'a Key,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.handler.run(message, Parts { connection: Some(connection), key, delivery, state: &self.state })
    }
}

/// A registered handler under its number in the inbox.
pub(crate) struct Registered<Db: Store> {
    pub id: ConsumerId,
    /// `service/handler`, as metrics and logs name it.
    pub name: Arc<str>,
    pub route: Route,
    pub handler: Arc<dyn AnyHandler<Db>>,
}

/// The handlers of one consumer.
pub(crate) struct Routes<Db: Store>(pub Vec<Arc<Registered<Db>>>);

/// Why no handler takes a delivery.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unrouted {
    /// Routes look at a field, and the bytes have none.
    #[error("the type of a message stands in a field here, and the bytes aren't JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// No route takes this type.
    #[error("no handler takes a message of this type from `{0}`")]
    UnknownType(Arc<str>),
}

impl<Db: Store> Routes<Db> {
    /// The handler of this delivery.
    pub(crate) fn find(&self, received: &Received) -> Result<&Arc<Registered<Db>>, Unrouted> {
        let mut body = Body::default();
        if let Some(found) = self.0.iter().find(|registered| registered.route.takes(received, &mut body)) {
            return Ok(found);
        }
        match body.0 {
            Some(Err(error)) => Err(Unrouted::NotJson(error)),
            _ => Err(Unrouted::UnknownType(Arc::clone(&received.source))),
        }
    }

    /// The handler with this number.
    pub(crate) fn by_id(&self, id: ConsumerId) -> Option<&Arc<Registered<Db>>> {
        self.0.iter().find(|registered| registered.id == id)
    }
}
