//! A consumer at a broker: fetching, the tasks that handle, shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::arrival::{Arrival, Settling, settle};
use crate::broker::{BrokerError, Incoming, Settlement, Source, Transport};
use crate::consumer::Consumer;
use crate::doctor::{Opened, conclude};
use crate::erased::{AnySettler, Erased, Token};
use crate::health::Health;
use crate::lease::LeaseKeeper;
use crate::options::Options;
use crate::pipeline::Pipeline;
use crate::run_error::RunError;
use crate::shutdown::{GIVE_BACK, drain, signal};
use crate::store::Store;
use crate::telemetry::InFlightGauge;

/// The first wait between two attempts to reach a broker.
const FASTEST: Duration = Duration::from_millis(100);

/// The longest one.
const SLOWEST: Duration = Duration::from_secs(30);

/// A source that was open for longer than this, and than the last wait, is waited for as if it had failed the first time.
const FAIRLY_OPEN: Duration = Duration::from_secs(1);

/// The most messages that one fetch is asked for.
const MOST_AT_ONCE: usize = 1_024;

/// How often the table is asked for dead letters that were sent back.
const REDRIVE_EVERY: Duration = Duration::from_secs(1);

/// How often claims beyond their retention are pruned.
const PRUNE_EVERY: Duration = Duration::from_mins(10);

impl<Db: Store, S> Consumer<Db, S> {
    /// Consumes from a broker until SIGTERM, SIGINT, [`Consumer::shutdown`], or the end of all its sources.
    ///
    /// # Errors
    /// [`RunError`], which says what refused the start or ended a source.
    pub async fn run<T: Transport>(&self, transport: T) -> Result<(), RunError> {
        self.run_until(transport, self.signalled()).await
    }

    /// Consumes from a broker until the future completes, [`Consumer::shutdown`], or the end of all its sources.
    ///
    /// # Errors
    /// [`RunError`], which says what refused the start or ended a source.
    pub async fn run_until<T: Transport>(&self, transport: T, until: impl Future<Output = ()>) -> Result<(), RunError> {
        let transport = Arc::new(transport);
        let run = self.begin(self.pipeline_at_broker().await?);
        let opening = async {
            let opened = self.open_sources(&*transport).await;
            let findings = opened.iter().flat_map(|opened| opened.findings.iter().cloned());
            let findings = self.own_findings().into_iter().chain(findings).collect::<Vec<_>>();
            let opened = opened.into_iter().map(Opened::unless_refused).collect::<Result<Vec<_>, _>>()?;
            conclude(findings, &mut Vec::new())?;
            let mut sources = JoinSet::new();
            for opened in opened {
                let (run, transport) = (Arc::clone(&run), Arc::clone(&transport));
                sources.spawn(async move { run.consume(&*transport, opened).await });
            }
            Ok(sources)
        };
        self.run_sources(&run, opening, until).await
    }

    /// Looks after the inbox of a process that only [delivers](Self::deliver), until SIGTERM, SIGINT or
    /// [`Consumer::shutdown`]: prunes, handles the dead letters that are sent back, and at the end waits for the deliveries
    /// that run. What runs longer than the grace period is rolled back, and its caller told to deliver it again.
    ///
    /// # Errors
    /// [`RunError`], which says what refused the start.
    pub async fn run_without_broker(&self) -> Result<(), RunError> {
        self.run_without_broker_until(self.signalled()).await
    }

    /// The same until the future completes or [`Consumer::shutdown`].
    ///
    /// # Errors
    /// [`RunError`], which says what refused the start.
    pub async fn run_without_broker_until(&self, until: impl Future<Output = ()>) -> Result<(), RunError> {
        let run = self.begin(self.pipeline().await?);
        let stop = run.stop.clone();
        let waiting = async move {
            stop.cancelled().await;
            Ok(())
        };
        self.run_sources(&run, std::future::ready(Ok(JoinSet::from_iter([waiting]))), until).await
    }

    /// A signal ends the process, and so all that watches this consumer's shutdown.
    async fn signalled(&self) {
        signal().await;
        self.stop.cancel();
    }

    fn begin(&self, pipeline: &Arc<Pipeline<Db>>) -> Arc<Run<Db>> {
        Arc::new(Run {
            health: self.health(),
            service: Arc::clone(&self.service),
            tasks: TaskTracker::new(),
            stop: self.stop.child_token(),
            end: CancellationToken::new(),
            pipeline: Arc::clone(pipeline),
        })
    }

    async fn run_sources(
        &self,
        run: &Arc<Run<Db>>,
        opening: impl Future<Output = Result<JoinSet<Result<(), RunError>>, RunError>>,
        until: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        // Whoever drops this future stops the fetching; messages that are being handled are finished all the same.
        let _stopped_when_dropped = run.stop.clone().drop_guard();
        let (mut sources, mut upkeep) = (JoinSet::new(), JoinSet::new());
        let worked_off = async {
            sources = opening.await?;
            upkeep.spawn(Arc::clone(run).redrive());
            upkeep.spawn(Arc::clone(run).prune());
            all(&mut sources).await?;
            run.tasks.close();
            run.tasks.wait().await;
            Ok(())
        };
        let ended = tokio::select! {
            ended = worked_off => ended,
            () = until => Ok(()),
            () = run.stop.cancelled() => Ok(()),
        };
        run.stop.cancel();
        let ended = ended.and(all(&mut sources).await);
        let grace = self.options.grace;
        tokio::join!(drain(&run.tasks, &run.end, grace), self.deliveries.drain(grace));
        // Letters that were taken and not started are given back.
        let _ = tokio::time::timeout(GIVE_BACK, async { while upkeep.join_next().await.is_some() {} }).await;
        upkeep.shutdown().await;
        ended
    }
}

/// Waits for all sources; the first error ends the wait.
async fn all(sources: &mut JoinSet<Result<(), RunError>>) -> Result<(), RunError> {
    while let Some(ended) = sources.join_next().await {
        match ended {
            Ok(ended) => ended?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    Ok(())
}

/// How many messages of a source may be here and run, over all connections to its broker: a body outlives the one that its
/// message came by.
struct Room {
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Room {
    fn of(options: &Options) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self { places: semaphore(options.in_flight()), running: semaphore(options.concurrency) }
    }
}

struct Run<Db: Store> {
    pipeline: Arc<Pipeline<Db>>,
    health: Health,
    service: Arc<str>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the bodies that still run when the grace period is over.
    end: CancellationToken,
}

impl<Db: Store> Run<Db> {
    /// Fetches from a source; when the broker is lost, opens it again, for ever.
    async fn consume<T: Transport>(self: &Arc<Self>, transport: &T, opened: Opened<T::Source>) -> Result<(), RunError> {
        let Opened { usage, mut source, findings: mut known } = opened;
        let name = &usage.name;
        let room = Room::of(&self.pipeline.options);
        let mut wait = FASTEST;
        loop {
            let error = match source {
                Ok(source) => {
                    self.health.source_up(name);
                    let opened_at = Instant::now();
                    let Err(error) = self.fetch(source, name, transport.system(), &room).await else { return Ok(()) };
                    // A source that opens and fails at once is as much out of reach as one that doesn't open.
                    if opened_at.elapsed() > wait.max(FAIRLY_OPEN) {
                        wait = FASTEST;
                    }
                    error
                }
                Err(error) => error,
            };
            match error {
                BrokerError::Unreachable(_) => {}
                BrokerError::Ended => return Ok(()),
                refused @ BrokerError::Refused(_) => {
                    return Err(RunError::Source { name: name.to_string(), error: refused });
                }
            }
            tracing::warn!(source = %name, %error, ?wait, "the broker is out of reach");
            self.health.source_down(name, error.to_string());
            let pause = tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0));
            if self.stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
            wait = (wait * 2).min(SLOWEST);
            source = match self.stop.run_until_cancelled(transport.open(name, &usage.wanted)).await {
                None => return Ok(()),
                Some(source) => source,
            };
            // Somebody may have changed the broker's settings meanwhile.
            if let Ok(source) = &source {
                conclude(usage.examine(source), &mut known)?;
            }
        }
    }

    /// Fetches no more than there are free places, while the store answers.
    async fn fetch<S: Source>(
        self: &Arc<Self>,
        mut source: S,
        name: &Arc<str>,
        system: &'static str,
        Room { places, running }: &Room,
    ) -> Result<(), BrokerError> {
        let capabilities = source.capabilities();
        let settler: Arc<dyn AnySettler> = Arc::new(Erased(source.settler()));
        let keep = self.pipeline.options.keep_leases && !capabilities.fixed_lease;
        let keeper = LeaseKeeper::start(Arc::clone(&settler), capabilities.lease, keep);
        loop {
            let free = async {
                self.health.wait_for(|report| report.store.is_none()).await;
                free_places(places).await
            };
            let Some(mut free) = self.stop.run_until_cancelled(free).await else { return Ok(()) };
            let Some(received) = self.stop.run_until_cancelled(source.receive(free.len())).await else { return Ok(()) };
            for Incoming { received, token, leased_at } in received? {
                let token = Token::new(token);
                let (held, lease) = keeper.hold(token.clone(), leased_at);
                let (source, settler) = (Arc::clone(name), Arc::clone(&settler));
                let settling = Settling { source, token, settler, lease, held: Some(held), place: free.pop() };
                let span = tracing::info_span!(
                    "process",
                    otel.name = %format_args!("process {name}"),
                    otel.kind = "consumer",
                    messaging.system = system,
                    messaging.operation.type = "process",
                    messaging.destination.name = %name,
                    messaging.consumer.group.name = %self.service,
                    messaging.message.body.size = received.body.len(),
                );
                let arrival = Arrival { received: Arc::new(received), settling, redriven: None, end: self.end.clone() };
                let task = Arc::clone(self).work(arrival, Arc::clone(running));
                self.tasks.spawn(task.instrument(span));
            }
        }
    }

    /// One message's task: waits for its turn, then goes through the one order. Nothing drops it.
    async fn work(self: Arc<Self>, arrival: Arrival, running: Arc<Semaphore>) {
        let _here = InFlightGauge::new(&arrival.received.source);
        let turn = self.stop.run_until_cancelled(running.acquire_owned()).await;
        if turn.is_none() || self.stop.is_cancelled() {
            settle(vec![Settlement::Release(arrival.settling)]).await;
        } else {
            self.pipeline.handle(vec![arrival]).await;
        }
    }

    /// Takes the dead letters that were sent back, for as long as the consumer runs.
    async fn redrive(self: Arc<Self>) {
        while !self.stop.is_cancelled() {
            match self.pipeline.redrive(&self.tasks, &self.stop, &self.end).await {
                Ok(0) => {}
                Ok(_) => continue,
                Err(error) => self.pipeline.outage.look(&error),
            }
            self.stop.run_until_cancelled(tokio::time::sleep(REDRIVE_EVERY)).await;
        }
    }

    /// Prunes what is beyond its retention, at moments that differ between processes, and reads the database's clock anew.
    async fn prune(self: Arc<Self>) {
        let pause = || self.stop.run_until_cancelled(tokio::time::sleep(PRUNE_EVERY.mul_f64(0.5 + fastrand::f64())));
        while pause().await.is_some() {
            match self.pipeline.inbox.now().await {
                Ok(now) => self.pipeline.clock.set(now),
                Err(error) => self.pipeline.outage.look(&error),
            }
            for route in &self.pipeline.routes.0 {
                let retention = self.pipeline.options.retention_of(&route.handler.spec());
                if let Err(error) = self.pipeline.inbox.prune(route.id, retention).await {
                    tracing::warn!(consumer = %route.name, error = %error.chain(), "pruning failed; it is tried again later");
                }
            }
        }
    }
}

/// The places that are free, at least one and at most as many as a fetch is asked for.
async fn free_places(places: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let first = Arc::clone(places).acquire_owned().await;
    let others = std::iter::from_fn(|| Arc::clone(places).try_acquire_owned().ok());
    first.into_iter().chain(others).take(MOST_AT_ONCE).collect()
}
