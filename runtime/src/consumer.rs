//! The consumer: a service's handlers over one inbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::decode::Json;
use crate::fault::Faults;
use crate::handler::Handler;
use crate::health::Health;
use crate::in_flight::InFlight;
use crate::options::{Options, UnknownType};
use crate::outage::Outage;
use crate::pipeline::Pipeline;
use crate::retry::RetryPolicy;
use crate::route::{AnyHandler, Registered, Route, Routes, With};
use crate::run_error::RunError;
use crate::shutdown::Shutdown;
use crate::store::{ConsumerId, Inbox, Registration, StartError, Store};

/// A service's handlers over one inbox, to be run against a broker or called without one.
///
/// The service's name is the first half of every key's namespace: two services in one database can't take each other's
/// messages, and renaming a service begins a new history.
pub struct Consumer<Db: Store, S = ()> {
    service: Arc<str>,
    inbox: Inbox<Db>,
    state: S,
    handlers: Vec<(Route, Arc<dyn AnyHandler<Db>>)>,
    options: Options,
    faults: Faults,
    health: Health,
    stop: CancellationToken,
    started: OnceCell<Arc<Pipeline<Db>>>,
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
            started: OnceCell::new(),
        }
    }
}

impl<Db: Store, S> Consumer<Db, S> {
    /// The state that handlers registered after this take parts of, by `State<T>`.
    pub fn state<T>(self, state: T) -> Consumer<Db, T> {
        let Self { service, inbox, state: _, handlers, options, faults, health, stop, started } = self;
        Consumer { service, inbox, state, handlers, options, faults, health, stop, started }
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

    /// How many messages are handled at once; 16 by default.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.options.concurrency = messages.max(1);
        self
    }

    /// How many further messages may wait here, their leases kept; none by default.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.options.prefetch = messages;
        self
    }

    /// How often and how late a failed message comes again.
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

    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Checks the tables and registers the handlers, once.
    pub(crate) async fn pipeline(&self) -> Result<&Arc<Pipeline<Db>>, RunError> {
        self.started.get_or_try_init(|| self.start()).await
    }

    async fn start(&self) -> Result<Arc<Pipeline<Db>>, RunError> {
        self.check_routes()?;
        self.check_horizon()?;
        self.inbox.check_risks().await?;
        self.inbox.verify().await.map_err(StartError::from)?;
        let clock = Clock::default();
        clock.set(self.inbox.now().await.map_err(StartError::Database)?);

        // A handler may stand on several sources: it is one consumer with all of them.
        let mut registrations: Vec<Registration> = Vec::new();
        let mut places = Vec::new();
        for (route, handler) in &self.handlers {
            let spec = handler.spec();
            let source = route.source.to_string();
            let known = registrations.iter_mut().position(|known| known.handler == spec.consumer);
            let place = known.unwrap_or(registrations.len());
            places.push(place);
            match registrations.get_mut(place) {
                Some(known) if known.sources.contains(&source) => {}
                Some(known) => known.sources.push(source),
                None => registrations.push(Registration {
                    service: self.service.to_string(),
                    handler: spec.consumer.to_owned(),
                    sources: vec![source],
                    key: spec.key.to_owned(),
                    previous_key: spec.previous_key.map(ToOwned::to_owned),
                }),
            }
        }
        registrations.push(Registration::unrouted(&self.service));
        let mut ids = self.inbox.register(&registrations).await.map_err(StartError::from)?;
        let unrouted = ids.pop().ok_or(RunError::NoHandler)?;
        self.warn_of_orphans(&registrations).await?;

        Ok(self.assemble(&places.into_iter().map(|place| ids[place]).collect::<Vec<_>>(), unrouted, clock))
    }

    /// The pipeline of the handlers under their numbers in the inbox.
    fn assemble(&self, ids: &[ConsumerId], unrouted: ConsumerId, clock: Clock) -> Arc<Pipeline<Db>> {
        let registered = self.handlers.iter().zip(ids).map(|((route, handler), id)| {
            let name = format!("{}/{}", self.service, handler.spec().consumer).into();
            Arc::new(Registered { id: *id, name, route: route.clone(), handler: Arc::clone(handler) })
        });
        Arc::new(Pipeline {
            routes: Routes(registered.collect()),
            unrouted,
            unrouted_name: format!("{}/*", self.service).into(),
            options: self.options.clone(),
            clock,
            outage: Outage::new(self.inbox.clone(), self.health.clone()),
            faults: self.faults.clone(),
            in_flight: InFlight::default(),
            alone: tokio::sync::RwLock::default(),
            inbox: self.inbox.clone(),
        })
    }

    /// Starts without asking the database, which isn't there: to measure the runtime alone.
    #[cfg(feature = "testing")]
    pub(crate) fn started_without_database(mut self) -> Self {
        let ids = (1..).map(ConsumerId).take(self.handlers.len()).collect::<Vec<_>>();
        let pipeline = self.assemble(&ids, ConsumerId(0), Clock::default());
        self.started = OnceCell::new_with(Some(pipeline));
        self
    }

    /// Each message has one handler, and two handlers never share a namespace.
    fn check_routes(&self) -> Result<(), RunError> {
        if self.handlers.is_empty() {
            return Err(RunError::NoHandler);
        }
        for (index, (route, handler)) in self.handlers.iter().enumerate() {
            let before = &self.handlers[..index];
            if before.iter().any(|(known, _)| known == route || (known.source == route.source && known.only.is_none()))
            {
                return Err(RunError::Ambiguous { from: route.source.to_string() });
            }
            let consumer = handler.spec().consumer;
            let other = |known: &dyn AnyHandler<Db>| known.function() != handler.function();
            if before.iter().any(|(_, known)| known.spec().consumer == consumer && other(&**known)) {
                return Err(RunError::SameName { consumer: consumer.to_owned() });
            }
        }
        Ok(())
    }

    /// The declared horizon holds without a broker too; what a broker keeps is known when its source is open.
    fn check_horizon(&self) -> Result<(), RunError> {
        let Some(horizon) = self.options.horizon else { return Ok(()) };
        for spec in self.handlers.iter().map(|(_, handler)| handler.spec()) {
            let retention = self.options.retention_of(&spec);
            if retention < horizon {
                let consumer = format!("{}/{}", self.service, spec.consumer);
                return Err(RunError::Retention { consumer, retention, horizon });
            }
        }
        Ok(())
    }

    /// A renamed function begins a new history without a word; its old name is then left over.
    async fn warn_of_orphans(&self, registrations: &[Registration]) -> Result<(), RunError> {
        let prefix = format!("{}/", self.service);
        for registered in self.inbox.registered().await.map_err(StartError::from)? {
            let Some(handler) = registered.name.strip_prefix(&prefix) else { continue };
            if registrations.iter().all(|known| known.handler != handler) {
                tracing::warn!(
                    consumer = %registered.name,
                    "the inbox knows this consumer, and no handler here has its name: if it was renamed, its old \
                     messages run again unless `consumer = \"{handler}\"` keeps the name"
                );
            }
        }
        Ok(())
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
