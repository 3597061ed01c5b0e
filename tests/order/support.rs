//! A shop whose inbox is a file, and a handler that does what a test tells it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Delivery, Error, Inbox, Outcome, RetryPolicy, State, idempotent};
use serde::Deserialize;
use sqlx::{Sqlite, SqliteConnection};
use tempfile::TempDir;

pub(crate) use crate::common::{PATIENCE, run_dry as run_to_the_end};

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub id: u64,
}

/// The body of the message that orders `id`.
pub(crate) fn order(id: u64) -> String {
    format!(r#"{{"id":{id}}}"#)
}

/// The effect: a row in a table without any unique index, so that a second one is seen.
pub(crate) async fn effect(tx: &mut SqliteConnection, id: u64) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects VALUES (?)").bind(id.cast_signed()).execute(tx).await?;
    Ok(())
}

/// Writes the effect and does nothing else.
#[idempotent(key = "order:{id}")]
pub(crate) async fn record(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

/// What a body does after its effect, by the number of its run, from 1.
#[derive(Clone)]
pub(crate) struct Script {
    step: Arc<dyn Fn(u32) -> Result<(), Error> + Send + Sync>,
    runs: Arc<AtomicU32>,
}

impl Script {
    pub(crate) fn new(step: impl Fn(u32) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self { step: Arc::new(step), runs: Arc::default() }
    }

    /// Fails in the first runs, and then succeeds.
    pub(crate) fn fails(times: u32) -> Self {
        Self::new(move |run| if run <= times { Err(Error::from(format!("failure {run}"))) } else { Ok(()) })
    }

    /// Takes the next step.
    pub(crate) fn run(&self) -> Result<(), Error> {
        (self.step)(self.runs.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

/// Writes the effect, and then does what the script says. The attempt is written too.
#[idempotent(key = "order:{id}")]
pub(crate) async fn scripted(
    order: Order,
    tx: &mut SqliteConnection,
    State(script): State<Script>,
    delivery: &Delivery,
) -> inboxed::Result<()> {
    effect(&mut *tx, order.id).await?;
    sqlx::query("INSERT INTO attempts VALUES (?)").bind(delivery.attempt()).execute(tx).await?;
    script.run()
}

pub(crate) struct Shop {
    pub inbox: Inbox<Sqlite>,
    pub url: String,
    _folder: TempDir,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        let inbox = Inbox::connect(&url).await.unwrap();
        inbox.migrate().await.unwrap();
        let tables = "CREATE TABLE effects (id INTEGER); CREATE TABLE attempts (attempt INTEGER)";
        sqlx::raw_sql(tables).execute(inbox.pool()).await.unwrap();
        Self { inbox, url, _folder: folder }
    }

    /// A consumer as one process has it: three attempts, retries at once.
    pub(crate) fn consumer(&self) -> Consumer<Sqlite> {
        self.service("shop")
    }

    pub(crate) fn service(&self, name: &str) -> Consumer<Sqlite> {
        let quick = RetryPolicy::default().attempts(3).backoff(Duration::from_millis(2), Duration::from_millis(10));
        Consumer::new(name, self.inbox.clone()).retry(quick)
    }

    /// A consumer whose one handler follows the script.
    pub(crate) fn scripted(&self, script: &Script) -> Consumer<Sqlite, Script> {
        self.consumer().state(script.clone()).handle("orders", scripted)
    }

    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.inbox.pool()).await.unwrap()
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM effects").await
    }

    pub(crate) async fn claims(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM inbox").await
    }

    /// The recorded failures of all keys.
    pub(crate) async fn failures(&self) -> i64 {
        self.number("SELECT COALESCE(SUM(failures), 0) FROM inbox_attempts").await
    }

    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.inbox.dead_letters().list(Filter::default()).await.unwrap()
    }

    /// The one letter.
    pub(crate) async fn letter(&self) -> DeadLetter {
        let mut letters = self.letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }
}

/// Delivers the order `id` once.
pub(crate) async fn deliver<S>(consumer: &Consumer<Sqlite, S>, id: u64) -> Outcome {
    consumer.deliver("orders", order(id), ()).await.unwrap()
}

/// Delivers the order `id` until its outcome is another than to deliver it again.
pub(crate) async fn deliver_to_the_end<S>(consumer: &Consumer<Sqlite, S>, id: u64) -> Outcome {
    for _ in 0..50 {
        match deliver(consumer, id).await {
            Outcome::Retry(delay) => tokio::time::sleep(delay).await,
            outcome => return outcome,
        }
    }
    panic!("no outcome after 50 deliveries");
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}
