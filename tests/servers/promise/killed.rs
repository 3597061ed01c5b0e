//! The database killed in mid-load.

use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Report, RetryPolicy};

use super::SERVICE;
use super::shop::{Database, Shop, event, record};
use crate::services::Own;
use crate::wait::{until, within};

const MESSAGES: usize = 3_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_killed_in_mid_load_and_started_again_has_every_effect_once() {
    let server = within("the server", Own::start(SERVICE)).await;
    let shop = Shop::over(Database::on(server.url().await)).await;
    let broker = Memory::builder().duplicates(0.1).lose_acks(0.05).reorder(32).build();
    for id in 0..MESSAGES {
        broker.publish("events", event(&format!("{id:04}")));
    }
    broker.end_when_settled("events");
    // An outage that counted as a failure of the body would make a dead letter.
    let once = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(1), Duration::from_millis(20));
    let app = shop.consumer().retry(once).concurrency(8).handle("events", record);
    let health = app.health();
    let (running, load) = (app, broker.clone());
    let run = tokio::spawn(async move { running.run_until(load, std::future::pending()).await });

    until("some effects", async || shop.number("SELECT COUNT(*) FROM effects").await > 200).await;
    within("the kill", server.kill()).await;
    let red = within("red health", health.wait_for(|report| report.store.is_some())).await;
    assert!(!red.is_healthy());
    assert!(!run.is_finished());
    let left = broker.counts("events");
    assert!(left.waiting + left.in_flight > 0, "it was killed in mid-load: {left:?}");
    within("the start", server.start_again()).await;
    within("green health", health.wait_for(Report::is_healthy)).await;

    within("the end", run).await.unwrap().unwrap();
    assert_eq!(shop.effects().await, (0..MESSAGES).map(|id| format!("{id:04}")).collect::<Vec<_>>());
    assert_eq!(shop.claims().await, MESSAGES as i64);
    assert!(shop.letters().await.is_empty());
    drop(shop);
    drop(server);
}
