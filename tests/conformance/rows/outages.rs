//! The inbox's database is out of reach for a while.

use std::str::FromStr;
use std::time::Duration;

use inboxed::{Inbox, RetryPolicy};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::time::sleep;

use crate::adapter::Adapter;
use crate::handlers::{Script, apply};
use crate::trial::{Deliveries, SERVICE, Trial, eventually, service};

/// Down for longer than all attempts would last: fetching stops, health is red, no attempt is counted and nothing is
/// dead-lettered; all is handled once it is back. The outage is a pool that has no connection to give.
pub(crate) async fn store_down<A: Adapter>() {
    let trial = Trial::<A>::new("store_down").await;
    let options = SqliteConnectOptions::from_str(&trial.url())
        .unwrap()
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(4).acquire_timeout(Duration::from_millis(50));
    let pool = pool.connect_with(options).await.unwrap();
    let script = Script::plain();
    let policy = RetryPolicy::default().attempts(3).backoff(Duration::from_millis(20), Duration::from_millis(20));
    let consumer = service(SERVICE, Inbox::new(pool.clone()), &script).retry(policy);
    let running = trial.run(consumer.handle(&*trial.source, apply));
    trial.publish_ids(0..10).await;
    trial.settled().await;

    let mut taken = Vec::new();
    eventually("every connection is taken", async || {
        taken.extend(pool.try_acquire());
        taken.extend(pool.acquire().await);
        taken.len() == 4
    })
    .await;
    trial.publish_ids(10..60).await;
    eventually("health is red", async || running.health.report().store.is_some()).await;
    // Time for what was fetched before to give up its wait for a connection, one after the other.
    sleep(Duration::from_millis(1500)).await;
    let fetched = trial.log.delivered();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(trial.log.delivered(), fetched, "fetching went on while the store was down");
    assert!(running.health.report().store.is_some());

    drop(taken);
    trial.settled().await;
    eventually("health is green again", async || running.health.report().is_healthy()).await;
    trial.finish(running, 60, Deliveries::Repeated).await;
    assert!(trial.dead_letters().await.is_empty());
    assert!(trial.effects().await.iter().all(|(.., attempt)| *attempt == 1), "an attempt was counted");
}
