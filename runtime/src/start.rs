//! A consumer's start: its handlers held against each other, the tables and what was registered there before.

use std::sync::Arc;

#[cfg(feature = "testing")]
use tokio::sync::OnceCell;

use crate::clock::Clock;
use crate::consumer::Consumer;
use crate::doctor::conclude;
use crate::finding::{Check, Finding};
use crate::in_flight::InFlight;
use crate::outage::Outage;
use crate::pipeline::Pipeline;
use crate::route::{AnyHandler, Registered, Routes};
use crate::run_error::RunError;
use crate::store::{ConsumerId, Registration, StartError, Store, UNROUTED};

impl<Db: Store, S> Consumer<Db, S> {
    /// Checks all that can be checked without a broker, and registers the handlers, once.
    pub(crate) async fn pipeline(&self) -> Result<&Arc<Pipeline<Db>>, RunError> {
        let start = async {
            conclude(self.own_findings(), &mut Vec::new())?;
            self.start().await
        };
        self.started.get_or_try_init(|| start).await
    }

    /// The same for a start that hears its findings together with those of its sources.
    pub(crate) async fn pipeline_at_broker(&self) -> Result<&Arc<Pipeline<Db>>, RunError> {
        self.started.get_or_try_init(|| self.start()).await
    }

    async fn start(&self) -> Result<Arc<Pipeline<Db>>, RunError> {
        if let Some(refusal) = self.refusals().await.into_iter().next() {
            return Err(refusal);
        }
        let clock = Clock::default();
        clock.set(self.inbox.now().await.map_err(StartError::Database)?);
        let (registrations, places) = self.registrations();
        let mut ids = self.inbox.register(&registrations).await.map_err(StartError::from)?;
        let unrouted = ids.pop().ok_or(RunError::NoHandler)?;
        conclude(self.orphans().await?, &mut Vec::new())?;
        Ok(self.assemble(&places.into_iter().map(|place| ids[place]).collect::<Vec<_>>(), unrouted, clock))
    }

    /// Why no start can be, in the order in which it is looked for. It ends early where the rest can't be looked at.
    pub(crate) async fn refusals(&self) -> Vec<RunError> {
        let mut refusals = self.refused_routes();
        let routed = refusals.is_empty();
        match self.inbox.check_risks().await {
            Ok(()) => {}
            Err(risks @ StartError::Risks(_)) => refusals.push(risks.into()),
            Err(unread) => {
                refusals.push(unread.into());
                return refusals;
            }
        }
        if let Err(unfit) = self.inbox.verify().await {
            refusals.push(StartError::from(unfit).into());
        } else if routed {
            let misfits = self.inbox.misfits(&self.registrations().0).await;
            refusals.extend(misfits.into_iter().map(|misfit| StartError::from(misfit).into()));
        }
        refusals
    }

    /// The consumers as they are registered, the one of unrouted messages last, and the place there of each handler.
    fn registrations(&self) -> (Vec<Registration>, Vec<usize>) {
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
        (registrations, places)
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
            outage: Outage::new(self.inbox.clone(), unrouted, self.health.clone()),
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
    fn refused_routes(&self) -> Vec<RunError> {
        let mut refused = Vec::new();
        if self.handlers.is_empty() {
            refused.push(RunError::NoHandler);
        }
        for (index, (route, handler)) in self.handlers.iter().enumerate() {
            let before = &self.handlers[..index];
            if before.iter().any(|(known, _)| known == route || (known.source == route.source && known.only.is_none()))
            {
                refused.push(RunError::Ambiguous { from: route.source.to_string() });
            }
            let consumer = handler.spec().consumer;
            let other = |known: &dyn AnyHandler<Db>| known.function() != handler.function();
            if before.iter().any(|(_, known)| known.spec().consumer == consumer && other(&**known)) {
                refused.push(RunError::SameName { consumer: consumer.to_owned() });
            }
        }
        refused
    }

    /// A renamed function begins a new history without a word; its old name is then left over.
    pub(crate) async fn orphans(&self) -> Result<Vec<Finding>, RunError> {
        let prefix = format!("{}/", self.service);
        let registered = self.inbox.registered().await.map_err(StartError::from)?;
        let orphans = registered.into_iter().filter_map(|registered| {
            let handler = registered.name.strip_prefix(&prefix)?;
            let known = |(_, known): &(_, Arc<dyn AnyHandler<Db>>)| known.spec().consumer == handler;
            if handler == UNROUTED || self.handlers.iter().any(known) {
                return None;
            }
            let cure = format!(
                "if it was renamed, keep its name by `consumer = \"{handler}\"`, or its old messages run again"
            );
            let found = "the inbox knows this consumer, and no handler here has its name";
            Some(Finding::warning(Check::Handlers, registered.name.clone(), found, cure))
        });
        Ok(orphans.collect())
    }
}
