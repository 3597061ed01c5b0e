//! What tests over a real inbox share: a database of their own, handlers whose effect can be counted, bounded waits.
//!
//! Effects go into a table without any unique index, so that a second one is seen.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod child;
pub(crate) mod counters;

use std::sync::Arc;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Delivery, Inbox, Outcome, RetryPolicy, State, idempotent};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};
use tempfile::TempDir;

/// No test waits longer for anything; a machine under load is slow, and a hang is for ever.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// An inbox in an `SQLite` file of its own, beside the table of effects.
pub(crate) struct Shop {
    folder: TempDir,
    pub(crate) inbox: Inbox<Sqlite>,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inbox = Inbox::connect(&url(&folder)).await.unwrap();
        inbox.migrate().await.unwrap();
        sqlx::raw_sql("CREATE TABLE effects (message TEXT NOT NULL)").execute(inbox.pool()).await.unwrap();
        Self { folder, inbox }
    }

    /// The database, for another process.
    pub(crate) fn url(&self) -> String {
        url(&self.folder)
    }

    /// The URL of another database, in a file beside the inbox's.
    pub(crate) fn other_url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.folder.path().join("other.sqlite").display())
    }

    /// The service `shop` over this inbox, with retries at once.
    pub(crate) fn consumer(&self) -> Consumer<Sqlite> {
        consumer(self.inbox.clone())
    }

    /// Runs a statement of the test's own.
    pub(crate) async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.inbox.pool()).await.unwrap();
    }

    /// The one number that a query of the test's own answers.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self.inbox.pool()).await.unwrap()
    }

    /// Every effect, sorted.
    pub(crate) async fn effects(&self) -> Vec<String> {
        let all = "SELECT message FROM effects ORDER BY message";
        sqlx::query_scalar(all).fetch_all(self.inbox.pool()).await.unwrap()
    }

    /// The keys that are claimed, sorted.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let all = "SELECT message_key FROM inbox ORDER BY message_key";
        sqlx::query_scalar(all).fetch_all(self.inbox.pool()).await.unwrap()
    }

    /// Every dead letter, the oldest first.
    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.inbox.dead_letters().list(Filter::default()).await.unwrap()
    }
}

fn url(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("shop.sqlite").display())
}

/// The service `shop` over an inbox, with retries at once.
pub(crate) fn consumer(inbox: Inbox<Sqlite>) -> Consumer<Sqlite> {
    Consumer::new("shop", inbox).retry(at_once(10))
}

/// So many attempts, with no time to speak of between them.
pub(crate) fn at_once(attempts: u32) -> RetryPolicy {
    RetryPolicy::default().attempts(attempts).backoff(Duration::from_millis(1), Duration::from_millis(4))
}

/// Waits for something that must come.
pub(crate) async fn within<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(PATIENCE, awaited).await.expect("it should have come by now")
}

/// Waits until a condition holds that must come to hold.
pub(crate) async fn until(mut condition: impl AsyncFnMut() -> bool) {
    within(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Runs a consumer until these sources of the broker are settled, every message of them.
pub(crate) async fn run_dry<S>(app: &Consumer<Sqlite, S>, broker: &Memory, sources: &[&str]) {
    for source in sources {
        broker.end_when_settled(source);
    }
    within(app.run_until(broker.clone(), std::future::pending())).await.unwrap();
}

/// Delivers one message without a broker.
pub(crate) async fn deliver<S>(app: &Consumer<Sqlite, S>, source: &str, body: impl Into<bytes::Bytes>) -> Outcome {
    within(app.deliver(source, body, inboxed::Headers::default())).await.unwrap()
}

/// Writes an effect.
pub(crate) async fn effect(tx: &mut SqliteConnection, message: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects (message) VALUES (?)").bind(message).execute(tx).await.map(drop)
}

/// A message that is its identity.
#[derive(Deserialize)]
pub(crate) struct Event {
    pub(crate) id: String,
}

/// An event's bytes.
pub(crate) fn event(id: &str) -> String {
    serde_json::json!({ "id": id }).to_string()
}

/// Writes the event's id as its effect.
#[idempotent(key = "event:{id}")]
pub(crate) async fn record(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, &event.id).await?)
}

type Ending = dyn Fn(&str, u32) -> inboxed::Result<()> + Send + Sync;

/// What a test lets happen in a body after its effect, by the event's id and the number of the attempt.
#[derive(Clone)]
pub(crate) struct Script(Arc<Ending>);

impl Script {
    pub(crate) fn new(script: impl Fn(&str, u32) -> inboxed::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }
}

/// Writes the event's id as its effect, and ends as the test's [`Script`] says.
#[idempotent(key = "event:{id}")]
pub(crate) async fn scripted(
    event: Event,
    delivery: &Delivery,
    State(script): State<Script>,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    (script.0)(&event.id, delivery.attempt())
}
