//! A database of its own, and in it an inbox beside a table of effects without any unique index: a second one is seen.

use std::time::Duration;

use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Headers, Inbox, Outcome, RetryPolicy, idempotent};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Connection as _};

use super::{Connection, Db, EFFECT, VARIABLE, create, discard};
use crate::services::shared;
use crate::wait::within;

/// A database with a random name, which [`open`] makes, and which is dropped at the end.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    pub(crate) fn on(server: String) -> Self {
        Self { server, name: format!("inboxed_{:016x}", fastrand::u64(..)) }
    }

    pub(crate) fn on_shared_server() -> Self {
        Self::on(shared(VARIABLE))
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/{}", self.server.rsplit_once('/').unwrap().0, self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, drop) = (self.server.clone(), discard(&self.name));
        // In a thread of its own: a drop can't wait for the runtime that it happens in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(execute_on(&server, drop));
        });
        let _ = dropping.join();
    }
}

async fn execute_on(url: &str, sql: String) -> sqlx::Result<()> {
    let mut connection = Connection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    connection.close().await
}

/// Opens the inbox of a database, which is made first if it isn't there.
pub(crate) async fn open(url: &str) -> Inbox<Db> {
    if let Ok(inbox) = Inbox::connect(url).await {
        return inbox;
    }
    let (server, name) = url.rsplit_once('/').unwrap();
    for sql in create(name) {
        execute_on(&format!("{server}/inboxed"), sql).await.unwrap();
    }
    let inbox = Inbox::connect(url).await.unwrap();
    inbox.migrate().await.unwrap();
    sqlx::raw_sql("CREATE TABLE effects (message VARCHAR(100) NOT NULL)").execute(inbox.pool()).await.unwrap();
    inbox
}

pub(crate) struct Shop {
    pub(crate) inbox: Inbox<Db>,
    pub(crate) database: Database,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::over(Database::on_shared_server()).await
    }

    pub(crate) async fn over(database: Database) -> Self {
        Self { inbox: open(&database.url()).await, database }
    }

    /// The service `shop`, in which a second failure of a body makes a dead letter.
    pub(crate) fn consumer(&self) -> Consumer<Db> {
        self.service("shop")
    }

    pub(crate) fn service(&self, name: &str) -> Consumer<Db> {
        let quick = RetryPolicy::default().attempts(2).backoff(Duration::from_millis(1), Duration::from_millis(4));
        Consumer::new(name, self.inbox.clone()).retry(quick)
    }

    /// Runs a statement of the test's own.
    pub(crate) async fn execute(&self, sql: &str) {
        execute_on(&self.database.url(), sql.to_owned()).await.unwrap();
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

    pub(crate) async fn claims(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM inbox").await
    }

    /// How many messages have so many recorded failures.
    pub(crate) async fn failed(&self, times: u32) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM inbox_attempts WHERE failures = {times}")).await
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

/// Delivers one message without a broker.
pub(crate) async fn deliver<S>(app: &Consumer<Db, S>, body: impl Into<bytes::Bytes>) -> Outcome {
    within("its outcome", app.deliver("events", body, Headers::default())).await.unwrap()
}

/// Writes an effect.
pub(crate) async fn effect(tx: &mut Connection, message: &str) -> sqlx::Result<()> {
    sqlx::query(EFFECT).bind(message).execute(tx).await.map(drop)
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
pub(crate) async fn record(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &event.id).await?)
}
