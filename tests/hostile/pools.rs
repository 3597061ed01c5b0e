//! Pools of the user's, with settings that the inbox would not have chosen.

use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Inbox, Outcome, idempotent};
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use crate::common::{Event, Shop, at_once, consumer, deliver, effect, event, record, within};

/// The user's pool: a rollback journal, in which readers and the writer lock each other out, and no patience.
async fn impatient(shop: &Shop, connections: u32) -> SqlitePool {
    let options = shop.other_url().parse::<SqliteConnectOptions>().unwrap();
    let options = options.journal_mode(SqliteJournalMode::Delete).synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(connections);
    let pool = pool.connect_with(options.busy_timeout(Duration::ZERO)).await.unwrap();
    Inbox::new(pool.clone()).migrate().await.unwrap();
    sqlx::raw_sql("CREATE TABLE effects (message TEXT NOT NULL)").execute(&pool).await.unwrap();
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_journal_without_patience_beside_busy_readers_has_one_effect_each() {
    let shop = Shop::open().await;
    let pool = impatient(&shop, 4).await;
    let app = consumer(Inbox::new(pool.clone())).retry(at_once(1)).handle("events", record);
    let broker = Memory::builder().duplicates(0.2).lose_acks(0.2).build();
    for id in 0..40 {
        broker.publish("events", event(&id.to_string()));
    }
    broker.end_when_settled("events");
    let readers = async {
        loop {
            let _ = sqlx::query("SELECT * FROM effects a, effects b").fetch_all(&pool).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let run = Box::pin(app.run_until(broker.clone(), std::future::pending()));
    within(async {
        tokio::select! { ended = run => ended.unwrap(), () = readers => {} }
    })
    .await;
    let count = || sqlx::query_as::<_, (i64, i64)>("SELECT COUNT(*), COUNT(DISTINCT message) FROM effects");
    assert_eq!(count().fetch_one(&pool).await.unwrap(), (40, 40));
    assert_eq!(app.inbox().dead_letters().count().await.unwrap(), 0);
}

#[tokio::test]
async fn pool_of_one_connection_handles_and_buries_and_redrives() {
    let shop = Shop::open().await;
    let pool = impatient(&shop, 1).await;
    let app = consumer(Inbox::new(pool.clone())).retry(at_once(1)).handle("events", record);
    for body in [event("1"), "bad".to_owned(), "x".repeat(10_000_000)] {
        let broker = Memory::new();
        broker.publish("events", body);
        crate::common::run_dry(&app, &broker, &["events"]).await;
    }
    let letters = app.inbox().dead_letters().list(inboxed::store::Filter::default()).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.body.len()).collect::<Vec<_>>(), [3, 10_000_000]);
    app.inbox().dead_letters().redrive(letters[1].id).await.unwrap();
    assert_eq!(app.redrive().await.unwrap(), 1);
}

/// Leaves its connection unfit for the next.
#[idempotent(key = "event:{id}")]
async fn spoils(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(&mut *tx, &event.id).await?;
    sqlx::raw_sql("PRAGMA query_only = ON").execute(tx).await?;
    Ok(())
}

#[tokio::test]
async fn connection_that_a_body_spoiled_harms_no_other_message_for_long() {
    let shop = Shop::open().await;
    let inbox = Inbox::options().max_connections(1).connect(&shop.url()).await.unwrap();
    let app = consumer(inbox).handle("events", spoils);
    for id in ["1", "2", "3"] {
        let mut outcome = deliver(&app, "events", event(id)).await;
        for _ in 0..3 {
            if let Outcome::Retry(delay) = outcome {
                tokio::time::sleep(delay).await;
                outcome = deliver(&app, "events", event(id)).await;
            }
        }
        assert!(matches!(outcome, Outcome::Done | Outcome::Duplicate), "{outcome:?}");
    }
    assert_eq!(shop.effects().await, ["1", "2", "3"]);
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);
}
