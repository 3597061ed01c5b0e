//! A consumer's start: its handlers held against each other, the tables and what was registered there before.

use std::sync::Arc;

#[cfg(feature = "testing")]
use tokio::sync::OnceCell;

use crate::clock::Clock;
use crate::consumer::Consumer;
use crate::in_flight::InFlight;
use crate::outage::Outage;
use crate::pipeline::Pipeline;
use crate::route::{AnyHandler, Registered, Routes};
use crate::run_error::RunError;
use crate::store::{ConsumerId, Registration, StartError, Store};

impl<Db: Store, S> Consumer<Db, S> {
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
        self.handlers.iter().map(|(_, handler)| handler.spec()).try_for_each(|spec| {
            let consumer = format!("{}/{}", self.service, spec.consumer);
            self.options.check_retention(&consumer, &spec, horizon)
        })
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
