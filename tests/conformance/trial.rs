//! One row's trial: a broker, an inbox in a file of its own, and the counting at its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use inboxed::broker::{Transport as _, Wanted};
use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Health, Inbox, RetryPolicy, RunError, Shutdown};
use sqlx::{Row, Sqlite};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::PATIENCE;
use crate::adapter::{Adapter, Outgoing, report};
use crate::handlers::{Script, Step, apply, body};
use crate::watch::{Log, Watched};

/// A lease that no row outlives by accident.
pub(crate) const LONG_LEASE: Duration = Duration::from_mins(1);

/// The service that consumes for the group of no name.
pub(crate) const SERVICE: &str = "shop";

/// How long something may take that comes at once on an idle machine: less than a row, so that what is missing has a name.
const SOON: Duration = Duration::from_mins(5);

pub(crate) struct Trial<A: Adapter> {
    pub(crate) row: &'static str,
    pub(crate) broker: Arc<A>,
    pub(crate) source: String,
    pub(crate) inbox: Inbox<Sqlite>,
    pub(crate) log: Arc<Log>,
    folder: TempDir,
}

/// How often messages may have been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deliveries {
    /// Once each, but for what the broker is known to repeat without a cause.
    Once,
    /// Again too: the row is about that.
    Repeated,
}

impl<A: Adapter> Trial<A> {
    pub(crate) async fn new(row: &'static str) -> Self {
        Self::with_lease(row, LONG_LEASE).await
    }

    pub(crate) async fn with_lease(row: &'static str, lease: Duration) -> Self {
        Self::on(row, A::start(lease).await).await
    }

    pub(crate) async fn on(row: &'static str, broker: A) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inbox = open(&folder).await;
        inbox.migrate().await.unwrap();
        sqlx::query(
            "CREATE TABLE effects (who TEXT NOT NULL, id INTEGER NOT NULL, source TEXT NOT NULL, attempt INTEGER NOT NULL)",
        )
        .execute(inbox.pool())
        .await
        .unwrap();
        let source = fresh_source(row);
        let trial = Self { row, broker: Arc::new(broker), source, inbox, log: Arc::default(), folder };
        trial.prepare("", &trial.source).await;
        trial
    }

    /// Makes what a group needs to get a source's messages, where its first consumer doesn't.
    pub(crate) async fn prepare(&self, group: &str, source: &str) {
        if A::MAKES_WHEN_OPENED {
            return;
        }
        let service = if group.is_empty() { SERVICE } else { group };
        let transport = self.broker.connect(group).unwrap();
        transport.create(source, &Wanted::new(service, 10)).await.unwrap();
    }

    /// The inbox as another process opens it.
    pub(crate) async fn other_inbox(&self) -> Inbox<Sqlite> {
        open(&self.folder).await
    }

    pub(crate) fn url(&self) -> String {
        url(&self.folder)
    }

    /// A consumer of the row's source, quick to retry.
    pub(crate) fn consumer(&self, script: &Script) -> Consumer<Sqlite, Script> {
        service(SERVICE, self.inbox.clone(), script).handle(&*self.source, apply)
    }

    /// The same consumer in another process.
    pub(crate) async fn other_consumer(&self, script: &Script) -> Consumer<Sqlite, Script> {
        service(SERVICE, self.other_inbox().await, script).handle(&*self.source, apply)
    }

    /// Runs a consumer until it is stopped.
    pub(crate) fn run(&self, consumer: Consumer<Sqlite, Script>) -> Running {
        self.run_in_group("", consumer)
    }

    pub(crate) fn run_in_group(&self, group: &str, consumer: Consumer<Sqlite, Script>) -> Running {
        let transport = Watched { inner: self.broker.connect(group).unwrap(), log: Arc::clone(&self.log) };
        let (shutdown, health) = (consumer.shutdown(), consumer.health());
        let task = tokio::spawn(async move { consumer.run_until(transport, std::future::pending()).await });
        Running { shutdown, health, task }
    }

    pub(crate) async fn publish(&self, message: impl Into<Outgoing>) {
        self.broker.publish(&self.source, message.into()).await.unwrap();
    }

    pub(crate) async fn publish_ids(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            self.publish(body(id)).await;
        }
    }

    /// The effects as (who, id, source, attempt), in the order of their commits.
    pub(crate) async fn effects(&self) -> Vec<(String, u64, String, u32)> {
        let rows =
            sqlx::query("SELECT who, id, source, attempt FROM effects ORDER BY rowid").fetch_all(self.inbox.pool());
        let read = |row: sqlx::sqlite::SqliteRow| {
            let id = u64::try_from(row.get::<i64, _>(1)).unwrap();
            (row.get(0), id, row.get(2), row.get(3))
        };
        rows.await.unwrap().into_iter().map(read).collect()
    }

    pub(crate) async fn effect_count(&self) -> usize {
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM effects").fetch_one(self.inbox.pool());
        usize::try_from(count.await.unwrap()).unwrap()
    }

    pub(crate) async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.inbox.dead_letters().list(Filter::default()).await.unwrap()
    }

    /// How many keys have recorded failures.
    pub(crate) async fn keys_with_failures(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM inbox_attempts WHERE failures > 0");
        count.fetch_one(self.inbox.pool()).await.unwrap()
    }

    /// Waits until the group of no name has settled every message.
    pub(crate) async fn settled(&self) {
        self.settled_in("").await;
    }

    pub(crate) async fn settled_in(&self, group: &str) {
        within(PATIENCE, "every message is settled", async || self.broker.backlog(group, &self.source).await == 0)
            .await;
    }

    /// Prints what came, and holds the effects against the messages that were to have one.
    pub(crate) async fn count(&self, expected: usize, deliveries: Deliveries) {
        let (delivered, distinct) = (self.log.delivered(), self.log.distinct());
        let effects = self.effects().await;
        report(self.row, format_args!("{delivered}/{distinct}/{}", effects.len()));
        let distinct_effects = effects.iter().map(|(who, id, ..)| (who, id)).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct_effects, expected, "messages without an effect, or effects of none");
        assert_eq!(effects.len(), expected, "effects that happened twice");
        if deliveries == Deliveries::Once {
            let repeated = delivered.saturating_sub(distinct);
            #[allow(clippy::cast_precision_loss, reason = "counts of a test")]
            let share = repeated as f64 / distinct.max(1) as f64;
            assert!(share <= A::DUPLICATES, "{repeated} of {distinct} messages were delivered again");
        }
    }

    /// Waits for the last message, stops the consumer, and counts.
    pub(crate) async fn finish(&self, running: Running, expected: usize, deliveries: Deliveries) {
        self.settled().await;
        running.stop().await;
        self.count(expected, deliveries).await;
    }
}

/// A source's name that nobody else has.
pub(crate) fn fresh_source(row: &str) -> String {
    format!("{row}-{:08x}", fastrand::u32(..))
}

/// A service's consumer without handlers, quick to retry.
pub(crate) fn service(name: &str, inbox: Inbox<Sqlite>, script: &Script) -> Consumer<Sqlite, Script> {
    let policy = RetryPolicy::default().backoff(Duration::from_millis(20), Duration::from_millis(100));
    Consumer::new(name, inbox).state(script.clone()).retry(policy).grace(Duration::from_secs(20))
}

fn url(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("shop.db").display())
}

async fn open(folder: &TempDir) -> Inbox<Sqlite> {
    Inbox::connect(&url(folder)).await.unwrap()
}

/// A consumer at work.
pub(crate) struct Running {
    shutdown: Shutdown,
    pub(crate) health: Health,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Asks it to end, without waiting.
    pub(crate) fn begin_stop(&self) {
        self.shutdown.begin();
    }

    /// Asks it to end, waits, and answers how long that took.
    pub(crate) async fn stop(self) -> Duration {
        let start = Instant::now();
        self.shutdown.begin();
        self.ended().await.unwrap();
        start.elapsed()
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> Result<(), RunError> {
        timeout(SOON, self.task).await.expect("the consumer ends").unwrap()
    }

    /// Cuts it off where it stands.
    pub(crate) fn abort(self) {
        self.task.abort();
    }
}

/// Waits, but not for long, until something is so.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFnMut() -> bool) {
    within(SOON, what, is_so).await;
}

async fn within(limit: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + limit;
    while !is_so().await {
        assert!(Instant::now() < until, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Holds handlers back until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(crate) fn open(&self) {
        self.0.close();
    }

    pub(crate) async fn pass(&self) {
        // A closed semaphore lets everybody go on, with an error that means just that.
        let _ = self.0.acquire().await;
    }

    /// A script that waits here with the messages that it picks.
    pub(crate) fn holds(&self, picks: impl Fn(&Step) -> bool + Send + Sync + 'static) -> Script {
        let gate = self.clone();
        Script::new(move |step| {
            let held = picks(&step).then(|| gate.clone());
            async move {
                if let Some(gate) = held {
                    gate.pass().await;
                }
                Ok(())
            }
        })
    }
}
