//! An inbox in a database of its own, beside a table of effects without any unique index, so that a second one is seen.

use inboxed::memory::Memory;
use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Delivery, Headers, Inbox, Outcome, State, idempotent};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Database, Db, open, sql};
use crate::common::{Event, Script, at_once, within};

pub(crate) struct Shop {
    pub(crate) inbox: Inbox<Db>,
    pub(crate) database: Database,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::over(Database::default()).await
    }

    pub(crate) async fn over(database: Database) -> Self {
        Self { inbox: open(&database.url()).await, database }
    }

    /// The database, for another process.
    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    /// The service `shop` over this inbox, with retries at once.
    pub(crate) fn consumer(&self) -> Consumer<Db> {
        consumer(self.inbox.clone())
    }

    /// Runs a statement of the test's own.
    pub(crate) async fn execute(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(self.inbox.pool()).await.unwrap();
    }

    /// The one number that a query of the test's own answers, of whatever width.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(query)).fetch_one(self.inbox.pool()).await.unwrap();
        row.try_get_unchecked(0).unwrap()
    }

    /// Every effect, sorted.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.texts("SELECT message FROM effects").await
    }

    /// The keys that are claimed, sorted.
    pub(crate) async fn keys(&self) -> Vec<String> {
        self.texts("SELECT message_key FROM inbox").await
    }

    pub(crate) async fn claims(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM inbox").await
    }

    /// How many messages have a failure, or were started as suspects.
    pub(crate) async fn counted(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM inbox_attempts").await
    }

    /// How many messages have so many recorded failures.
    pub(crate) async fn failed(&self, times: u32) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM inbox_attempts WHERE failures = {times}")).await
    }

    /// Every dead letter, the oldest first.
    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.inbox.dead_letters().list(Filter::default()).await.unwrap()
    }

    /// The one letter.
    pub(crate) async fn letter(&self) -> DeadLetter {
        let mut letters = self.letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }

    /// Unchecked, since MariaDB's keys are bytes to it. Sorted here, since databases sort otherwise.
    async fn texts(&self, query: &'static str) -> Vec<String> {
        let rows = sqlx::query(query).fetch_all(self.inbox.pool()).await.unwrap();
        let mut texts = rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect::<Vec<String>>();
        texts.sort();
        texts
    }
}

/// The service `shop` over an inbox, with retries at once.
pub(crate) fn consumer(inbox: Inbox<Db>) -> Consumer<Db> {
    Consumer::new("shop", inbox).retry(at_once(10))
}

/// Runs a consumer until these sources of the broker are settled, every message of them.
pub(crate) async fn run_dry<S>(app: &Consumer<Db, S>, broker: &Memory, sources: &[&str]) {
    for source in sources {
        broker.end_when_settled(source);
    }
    within(app.run_until(broker.clone(), std::future::pending())).await.unwrap();
}

/// Delivers one message without a broker.
pub(crate) async fn deliver<S>(app: &Consumer<Db, S>, source: &str, body: impl Into<bytes::Bytes>) -> Outcome {
    within(app.deliver(source, body, Headers::default())).await.unwrap()
}

/// Writes an effect.
pub(crate) async fn effect(tx: &mut Connection, message: &str) -> sqlx::Result<()> {
    sqlx::query(sql("INSERT INTO effects (message) VALUES (?)")).bind(message).execute(tx).await.map(drop)
}

/// Writes the event's id as its effect.
#[idempotent(key = "event:{id}")]
pub(crate) async fn record(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &event.id).await?)
}

/// Writes the event's id as its effect, and ends as the test's [`Script`] says.
#[idempotent(key = "event:{id}")]
pub(crate) async fn scripted(
    event: Event,
    delivery: &Delivery,
    State(script): State<Script>,
    tx: &mut Connection,
) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    script.end(&event.id, delivery.attempt())
}
