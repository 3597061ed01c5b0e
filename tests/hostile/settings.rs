//! Settings at their ends: `Duration::MAX` for "never", `usize::MAX` for "as many as there are".

use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Outcome, RetryPolicy};

use crate::common::{Script, Shop, deliver, event, record, run_dry, scripted, until, within};

#[tokio::test]
async fn timeout_without_end_handles_messages() {
    let shop = Shop::open().await;
    let app = shop.consumer().timeout(Duration::MAX).handle("events", record);
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::Done);
}

#[tokio::test]
async fn retention_without_end_handles_messages() {
    let shop = Shop::open().await;
    let app = shop.consumer().retention(Duration::MAX).handle("events", record);
    let broker = Memory::builder().retention(Duration::MAX).build();
    broker.publish("events", event("1"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["1"]);
}

#[tokio::test]
async fn lease_without_end_handles_messages() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", record);
    let broker = Memory::builder().lease(Duration::MAX).build();
    broker.publish("events", event("1"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["1"]);
}

#[tokio::test]
async fn backoff_without_end_keeps_the_message() {
    let shop = Shop::open().await;
    let app = shop.consumer().retry(RetryPolicy::default().backoff(Duration::MAX, Duration::MAX));
    let app = app.state(Script::new(|_, _| Err("closed".into()))).handle("events", scripted);
    let broker = Memory::new();
    broker.publish("events", event("1"));
    let script = async {
        until(async || shop.number("SELECT COUNT(*) FROM inbox_attempts").await == 1).await;
        until(async || broker.counts("events").in_flight == 0).await;
        app.shutdown().begin();
    };
    let (ended, ()) =
        within(async { tokio::join!(app.run_until(broker.clone(), std::future::pending()), script) }).await;
    ended.unwrap();
    assert_eq!(broker.counts("events").waiting, 1);
}

#[tokio::test]
async fn concurrency_without_end_handles_messages() {
    let shop = Shop::open().await;
    let app = shop.consumer().concurrency(usize::MAX).prefetch(usize::MAX).handle("events", record);
    let broker = Memory::new();
    broker.publish("events", event("1"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["1"]);
}

#[tokio::test]
async fn grace_without_end_ends_when_the_work_does() {
    let shop = Shop::open().await;
    let app = shop.consumer().grace(Duration::MAX).handle("events", record);
    let broker = Memory::new();
    broker.publish("events", event("1"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["1"]);
}
