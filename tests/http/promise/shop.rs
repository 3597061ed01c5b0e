//! A shop that takes events, and a table of effects without any unique index: a second one is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Delivery, Inbox, RetryPolicy, State, idempotent, permanent};
use serde::Deserialize;
use sqlx::AssertSqlSafe;
use tokio::sync::Semaphore;

use super::{Connection, Database, Db, EFFECT};

pub(crate) struct Shop {
    pub(crate) inbox: Inbox<Db>,
    pub(crate) database: Database,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let database = Database::make().await;
        let inbox = Inbox::connect(&database.url()).await.unwrap();
        inbox.migrate().await.unwrap();
        sqlx::raw_sql("CREATE TABLE effects (message VARCHAR(100) NOT NULL)").execute(inbox.pool()).await.unwrap();
        Self { inbox, database }
    }

    /// The service `shop`, which retries after two or three seconds, once.
    pub(crate) fn consumer(&self) -> Consumer<Db> {
        let backoff = Duration::from_secs(3);
        Consumer::new("shop", self.inbox.clone()).retry(RetryPolicy::default().attempts(2).backoff(backoff, backoff))
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

    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.inbox.dead_letters().list(Filter::default()).await.unwrap()
    }

    /// The one letter.
    pub(crate) async fn letter(&self) -> DeadLetter {
        let mut letters = self.letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }

    /// Whether nothing has come of any request.
    pub(crate) async fn is_untouched(&self) -> bool {
        let claims = self.number("SELECT COUNT(*) FROM inbox").await;
        claims == 0 && self.effects().await.is_empty() && self.letters().await.is_empty()
    }
}

/// A message that is its identity, and says what its body does.
#[derive(Deserialize)]
pub(crate) struct Event {
    pub(crate) id: String,
    #[serde(default)]
    does: Does,
}

#[derive(Default, Deserialize)]
enum Does {
    #[default]
    Nothing,
    Fail,
    Despair,
}

/// An event's bytes.
pub(crate) fn event(id: &str) -> String {
    serde_json::json!({ "id": id }).to_string()
}

/// The bytes of an event whose body fails, or despairs: no retry can help.
pub(crate) fn event_that(id: &str, does: &str) -> String {
    serde_json::json!({ "id": id, "does": does }).to_string()
}

async fn effect(tx: &mut Connection, message: &str) -> sqlx::Result<()> {
    sqlx::query(EFFECT).bind(message).execute(tx).await.map(drop)
}

/// Writes the event's id as its effect, and then does what the event says.
#[idempotent(key = "event:{id}", on_conflict = "dead_letter")]
pub(crate) async fn record(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    match event.does {
        Does::Nothing => Ok(()),
        Does::Fail => Err("the warehouse is closed".into()),
        Does::Despair => Err(permanent("no such product")),
    }
}

/// A door that bodies wait at, their effect written.
#[derive(Clone)]
pub(crate) struct Door {
    come: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Door {
    pub(crate) fn closed() -> Self {
        Self { come: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// Opens for ever.
    pub(crate) fn open(&self) {
        self.open.close();
    }

    /// Waits until so many bodies have come.
    pub(crate) async fn come(&self, bodies: usize) {
        crate::until(async || self.come.load(Ordering::SeqCst) == bodies).await;
    }
}

/// Writes the event's id as its effect, and waits at the door.
#[idempotent(key = "event:{id}")]
pub(crate) async fn wait(event: Event, tx: &mut Connection, State(door): State<Door>) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    door.come.fetch_add(1, Ordering::SeqCst);
    let _opened = door.open.acquire().await;
    Ok(())
}

/// Writes the event's id as its effect, takes its time, and fails twice.
#[idempotent(key = "event:{id}")]
pub(crate) async fn slowly(event: Event, tx: &mut Connection, delivery: &Delivery) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    if delivery.attempt() < 3 { Err("not yet".into()) } else { Ok(()) }
}
