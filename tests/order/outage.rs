//! A store out of reach: fetching stands still, health is red, nothing is counted, and all goes on afterwards.

use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Consumer, Inbox, Outcome, RetryPolicy};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Sqlite, SqliteConnection};

use super::support::{Shop, deliver, deliver_to_the_end, order, record, until};

/// The pool is the user's, and the user takes its only connection: as good as no database.
#[tokio::test]
async fn outage_stops_fetching_and_counts_nothing() {
    let shop = Shop::open().await;
    let options = shop.url.parse::<SqliteConnectOptions>().unwrap();
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(100));
    let pool = pool.connect_with(options).await.unwrap();
    let quick = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(2), Duration::from_millis(10));
    let consumer = Consumer::new("shop", Inbox::new(pool.clone())).retry(quick).handle("orders", record);
    let (health, shutdown, broker) = (consumer.health(), consumer.shutdown(), Memory::new());
    assert_eq!(deliver_to_the_end(&consumer, 1_000).await, Outcome::Done);

    let script = async {
        let held = take(&pool).await;
        broker.publish("orders", order(1));
        let red =
            tokio::time::timeout(super::support::PATIENCE, health.wait_for(|report| report.store.is_some())).await;
        assert!(!red.unwrap().is_healthy());
        // A fetch that was under way when the store went down still brings something; after that nothing does.
        broker.publish("orders", order(2));
        let mut before = 0;
        until("fetching stands still", async || {
            let deliveries = std::mem::replace(&mut before, broker.counts("orders").deliveries);
            tokio::time::sleep(Duration::from_millis(300)).await;
            deliveries == before && broker.counts("orders").in_flight == 0
        })
        .await;
        for id in 3..10 {
            broker.publish("orders", order(id));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let counts = broker.counts("orders");
        assert_eq!((counts.deliveries, counts.acknowledged), (before, 0));
        assert!(!health.report().is_healthy());

        drop(held);
        until("all is handled", async || broker.counts("orders").acknowledged == 9).await;
        assert!(health.report().is_healthy());
        shutdown.begin();
    };
    let (ended, ()) = tokio::join!(consumer.run_until(broker.clone(), std::future::pending()), script);
    ended.unwrap();
    assert_eq!((shop.effects().await, shop.failures().await, shop.letters().await.len()), (10, 0, 0));
}

/// Takes a connection from a pool that gives up soon.
async fn take(pool: &SqlitePool) -> PoolConnection<Sqlite> {
    loop {
        if let Ok(connection) = pool.acquire().await {
            return connection;
        }
    }
}

/// Another process holds the write lock for longer than a claim may wait: no outage, since the database answers.
#[tokio::test]
async fn write_lock_held_elsewhere_is_waited_for_and_uncounted() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().timeout(Duration::from_millis(1_500)).handle("orders", record);
    assert_eq!(deliver(&consumer, 1).await, Outcome::Done);
    let mut other = SqliteConnection::connect(&shop.url).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert!(consumer.health().report().is_healthy());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.effects().await, shop.failures().await), (2, 0));
}

/// Attempts are the body's own failures; a claim that can't be made isn't one, whatever the database's reason.
#[tokio::test]
async fn claim_that_the_database_refuses_is_no_failure_of_the_body() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().retry(RetryPolicy::default().attempts(1)).handle("orders", record);
    assert_eq!(deliver(&consumer, 1).await, Outcome::Done);
    sqlx::raw_sql("ALTER TABLE inbox RENAME TO mislaid").execute(shop.inbox.pool()).await.unwrap();
    for _ in 0..3 {
        assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    }
    assert_eq!((shop.failures().await, shop.letters().await.len()), (0, 0));
    sqlx::raw_sql("ALTER TABLE mislaid RENAME TO inbox").execute(shop.inbox.pool()).await.unwrap();
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(shop.effects().await, 2);
}

/// A database that is read-only, or full, answers a question: it isn't well all the same.
#[tokio::test]
async fn database_that_takes_no_writes_stops_fetching() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    let (health, shutdown, broker) = (consumer.health(), consumer.shutdown(), Memory::new());
    assert_eq!(deliver(&consumer, 1_000).await, Outcome::Done);
    let refuse = "CREATE TRIGGER no_claims BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'read-only'); END;
        CREATE TRIGGER no_updates BEFORE UPDATE ON inbox_consumers BEGIN SELECT RAISE(ABORT, 'read-only'); END";
    sqlx::raw_sql(refuse).execute(shop.inbox.pool()).await.unwrap();

    let script = async {
        broker.publish("orders", order(1));
        until("health is red", async || health.report().store.is_some()).await;
        let before = broker.counts("orders").deliveries;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(broker.counts("orders").deliveries <= before + 1, "it is fetched on and on");
        assert!(!health.report().is_healthy());

        let allow = "DROP TRIGGER no_claims; DROP TRIGGER no_updates";
        sqlx::raw_sql(allow).execute(shop.inbox.pool()).await.unwrap();
        until("it is handled", async || broker.counts("orders").acknowledged == 1).await;
        assert!(health.report().is_healthy());
        shutdown.begin();
    };
    let (ended, ()) = tokio::join!(consumer.run_until(broker.clone(), std::future::pending()), script);
    ended.unwrap();
    assert_eq!((shop.effects().await, shop.failures().await, shop.letters().await.len()), (2, 0, 0));
}
