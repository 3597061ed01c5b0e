//! The database killed in mid-load, and a control: where commits may be forgotten, the same load shows it.

use std::collections::BTreeSet;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Inbox, Report, RetryPolicy};

use super::shop::{Database, Shop, event, open, record};
use super::{FORGETFUL, RISK, SERVICE};
use crate::services::Own;
use crate::wait::{until, within};

const MESSAGES: u32 = 3_000;

/// What a load with the server killed in the middle came to.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    lost: usize,
    doubled: usize,
}

/// Handles all messages, acknowledged ones delivered again now and then, while the server is killed so many times.
async fn load(server: &Own, shop: &Shop, kills: u32) -> Verdict {
    let lease = Duration::from_secs(3);
    let broker = Memory::builder().lease(lease).duplicates(0.1).lose_acks(0.05).reorder(32).build();
    for id in 0..MESSAGES {
        broker.publish("events", event(&id.to_string()));
    }
    broker.end_when_settled("events");
    // An outage that counted as a failure of the body would make a dead letter.
    let once = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(1), Duration::from_millis(20));
    let app = shop.consumer().retry(once).concurrency(8).handle("events", record);
    let health = app.health();
    let (messages, settled) = (broker.clone(), async || broker.counts("events").acknowledged);
    let run = tokio::spawn(async move { app.run_until(messages, std::future::pending()).await });
    for kill in 0..kills {
        let before = settled().await;
        until("some messages are done", async || settled().await > before + 300).await;
        within("the kill", server.kill()).await;
        within("red health", health.wait_for(|report| report.store.is_some())).await;
        let counts = broker.counts("events");
        assert!(counts.waiting + counts.in_flight > 0, "kill {kill} was in mid-load: {counts:?}");
        within("the start", server.start_again()).await;
        within("green health", health.wait_for(Report::is_healthy)).await;
    }
    within("the end", run).await.unwrap().unwrap();
    assert!(shop.letters().await.is_empty());
    let effects = shop.effects().await;
    let distinct = effects.iter().collect::<BTreeSet<_>>().len();
    Verdict { lost: MESSAGES as usize - distinct, doubled: effects.len() - distinct }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_killed_in_mid_load_and_started_again_has_every_effect_once() {
    let server = within("the server", Own::start(SERVICE)).await;
    let shop = Shop::over(Database::on(server.url().await)).await;
    assert_eq!(load(&server, &shop, 2).await, Verdict { lost: 0, doubled: 0 });
    assert_eq!(shop.claims().await, i64::from(MESSAGES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_database_that_forgets_what_it_has_committed_is_found_losing() {
    let server = within("the server", Own::start(SERVICE)).await;
    let database = Database::on(server.url().await);
    open(&database.url()).await;
    let inbox = Inbox::options().allow(RISK).connect(&database.url()).await.unwrap();
    let shop = Shop { inbox, database };
    for sql in FORGETFUL {
        shop.execute(sql).await;
    }
    let verdict = load(&server, &shop, 1).await;
    assert!(verdict.lost > 0, "{verdict:?}");
}
