//! The consumer: a service's handlers over one inbox.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::broker::Wanted;
use crate::decode::Json;
use crate::deliver::Deliveries;
use crate::fault::Faults;
use crate::finding::Check;
use crate::handler::{Handler, Spec};
use crate::health::{Health, SourceHealth};
use crate::options::{Options, UnknownType};
use crate::pipeline::Pipeline;
use crate::retry::RetryPolicy;
use crate::route::{AnyHandler, Route, With};
use crate::shutdown::Shutdown;
use crate::store::{Inbox, Store};

/// A service's handlers over one inbox, to be run against a broker or called without one.
///
/// The service's name is the first half of every key's namespace: two services in one database can't take each other's
/// messages, and renaming a service begins a new history.
pub struct Consumer<Db: Store, S = ()> {
    pub(crate) service: Arc<str>,
    pub(crate) inbox: Inbox<Db>,
    state: S,
    pub(crate) handlers: Vec<(Route, Arc<dyn AnyHandler<Db>>)>,
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    pub(crate) health: Health,
    pub(crate) stop: CancellationToken,
    pub(crate) deliveries: Deliveries,
    pub(crate) started: OnceCell<Arc<Pipeline<Db>>>,
}

impl<Db: Store> Consumer<Db> {
    /// A consumer without handlers.
    pub fn new(service: impl Into<Arc<str>>, inbox: Inbox<Db>) -> Self {
        Self {
            service: service.into(),
            inbox,
            state: (),
            handlers: Vec::new(),
            options: Options::default(),
            faults: Faults::default(),
            health: Health::default(),
            stop: CancellationToken::new(),
            deliveries: Deliveries::default(),
            started: OnceCell::new(),
        }
    }
}

impl<Db: Store, S> Consumer<Db, S> {
    /// The state that handlers registered after this take parts of, by `State<T>`.
    pub fn state<T>(self, state: T) -> Consumer<Db, T> {
        let Self { service, inbox, state: _, handlers, options, faults, health, stop, deliveries, started } = self;
        Consumer { service, inbox, state, handlers, options, faults, health, stop, deliveries, started }
    }

    /// Registers a handler for a source's messages, decoded as JSON: `"orders"`, or one type of them by
    /// [`on`](crate::on).
    pub fn handle<H>(self, route: impl Into<Route>, handler: H) -> Self
    where
        H: Handler<Db, S, Json>,
        S: Clone + Send + Sync + 'static,
    {
        self.handle_with(route, handler, Json)
    }

    /// Registers a handler whose messages another decoder makes.
    pub fn handle_with<H, D>(mut self, route: impl Into<Route>, handler: H, decoder: D) -> Self
    where
        H: Handler<Db, S, D>,
        S: Clone + Send + Sync + 'static,
        D: Send + Sync + 'static,
    {
        let handler = Arc::new(With { handler, state: self.state.clone(), decoder });
        self.handlers.push((route.into(), handler));
        self
    }

    /// How many messages of each source are handled at once; 16 by default.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.options.concurrency = messages.max(1);
        self
    }

    /// How many further messages of each source may wait here, their leases kept; none by default.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.options.prefetch = messages;
        self
    }

    /// How often and how late a failed message comes again; by default ten attempts, the first retry within a second and
    /// later ones within five minutes.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// How long a body may run unless its attribute says otherwise; by default 30 seconds, or two thirds of the lease if
    /// that is less.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// How long claims are kept unless a handler's attribute says otherwise; 30 days by default. A duplicate that comes
    /// later isn't recognised, so a delivery nearly that old is dead-lettered instead of run.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.retention = retention;
        self
    }

    /// How late the last duplicate may come: the longest of the producer's retries, an operator's replay, and what the
    /// broker keeps. A retention below it refuses the start.
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.options.horizon = Some(horizon);
        self
    }

    /// What becomes of messages that no handler takes; given back by default.
    pub fn unknown_type(mut self, then: UnknownType) -> Self {
        self.options.unknown_type = then;
        self
    }

    /// How many redeliveries without a recorded failure make a message run alone, since it may kill the process; 3 by
    /// default.
    pub fn suspect_after(mut self, redeliveries: u32) -> Self {
        self.options.suspect_after = redeliveries.max(1);
        self
    }

    /// Whether leases are extended while messages are here; they are by default. Without it a body that outlives its
    /// lease runs twice at once, and one of them is rolled back.
    pub fn keep_leases(mut self, keep: bool) -> Self {
        self.options.keep_leases = keep;
        self
    }

    /// How long running bodies may go on after a shutdown was asked for; 25 seconds by default. What runs longer is
    /// rolled back and given back.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// Starts although the doctor finds errors of this kind; they are logged as warnings. [`Consumer::check`] tells what there
    /// is to allow, and a start that is refused names it.
    ///
    /// [`Check::Handlers`], [`Check::Inbox`] and [`Check::Source`] can't be allowed: nothing runs against them.
    pub fn allow(mut self, check: Check) -> Self {
        self.options.allowed.push(check);
        self
    }

    /// Calls a hook at each named point of the one order: a test crashes there.
    #[cfg(feature = "testing")]
    pub fn on_fault_point(mut self, hook: impl Fn(crate::fault::FaultPoint) + Send + Sync + 'static) -> Self {
        self.faults.hook = Some(Arc::new(hook));
        self
    }

    /// What keeps the consumer from working, if anything.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// A handle that asks a running consumer to shut down.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown(self.stop.clone())
    }

    /// The inbox.
    pub fn inbox(&self) -> &Inbox<Db> {
        &self.inbox
    }

    /// The handlers' sources, each once, by name.
    pub(crate) fn sources(&self) -> BTreeSet<Arc<str>> {
        self.handlers.iter().map(|(route, _)| Arc::clone(&route.source)).collect()
    }

    /// What the attributes of a source's handlers say.
    pub(crate) fn specs_of(&self, source: &str) -> impl Iterator<Item = Spec> {
        self.handlers.iter().filter(move |(route, _)| *route.source == *source).map(|(_, handler)| handler.spec())
    }

    /// What this consumer wants of a source.
    pub(crate) fn wanted(&self, source: &Arc<str>) -> Wanted {
        let options = &self.options;
        let retention = self.specs_of(source).map(|spec| options.retention_of(&spec)).min();
        Wanted {
            service: Arc::clone(&self.service),
            in_flight: options.in_flight(),
            timeout: self.specs_of(source).filter_map(|spec| spec.timeout.or(options.timeout)).max(),
            retention: retention.unwrap_or(options.retention),
            attempts: options.retry.most_attempts(),
            health: SourceHealth::new(self.health.clone(), Arc::clone(source)),
        }
    }
}

impl<Db: Store, S> fmt::Debug for Consumer<Db, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("service", &self.service)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
