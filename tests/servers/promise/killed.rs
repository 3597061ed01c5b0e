//! The database killed in mid-load. Where commits may be forgotten, the same load has to show it: the controls beside it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::Risk;
use inboxed::{Inbox, Report, RetryPolicy};

use super::{Database, Db, SERVICE, Shop, open, record};
use crate::common::services::Own;
use crate::common::{event, until, within};

/// So many messages wait at least, however fast they are handled while a kill is on its way.
const WAITING: usize = 200;

/// What a load with the server killed in the middle came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
}

/// Publishes for ever, counting.
async fn feed(broker: &Memory, published: &Cell<usize>) {
    loop {
        while broker.counts("events").waiting < WAITING {
            broker.publish("events", event(&published.get().to_string()));
            published.set(published.get() + 1);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Handles all messages, acknowledged ones delivered again now and then, while the server is killed so many times.
async fn load(server: &Own, shop: &Shop, kills: u32) -> Verdict {
    let lease = Duration::from_secs(3);
    let broker = Memory::builder().lease(lease).duplicates(0.1).lose_acks(0.05).reorder(32).build();
    // An outage that counted as a failure of the body would make a dead letter.
    let once = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(1), Duration::from_millis(20));
    let app = shop.consumer().retry(once).concurrency(8).handle("events", record);
    let health = app.health();
    let (messages, settled) = (broker.clone(), async || broker.counts("events").acknowledged);
    let mut run = tokio::spawn(async move { app.run_until(messages, std::future::pending()).await });
    let killing = async {
        for _ in 0..kills {
            let before = settled().await;
            until(async || settled().await > before + 300).await;
            within(server.kill()).await;
            within(health.wait_for(|report| report.store.is_some())).await;
            within(server.start_again()).await;
            within(health.wait_for(Report::is_healthy)).await;
        }
    };
    let published = Cell::new(0);
    tokio::select! { () = killing => {}, () = feed(&broker, &published) => {}, ended = &mut run => panic!("it ended early: {ended:?}") }
    broker.end_when_settled("events");
    within(run).await.unwrap().unwrap();
    assert!(shop.letters().await.is_empty());
    let effects = shop.effects().await;
    let distinct = effects.iter().collect::<BTreeSet<_>>().len();
    Verdict { lost: published.get() - distinct, doubled: effects.len() - distinct }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_killed_in_mid_load_and_started_again_has_every_effect_once() {
    let server = Own::start(SERVICE).await;
    let shop = Shop::over(Database::on(server.url().await)).await;
    assert_eq!(load(&server, &shop, 2).await, Verdict { lost: 0, doubled: 0 });
    let effects = shop.number("SELECT COUNT(*) FROM effects").await;
    assert_eq!(shop.claims().await, effects);
}

/// The load on a server that was told so, past what the inbox refuses.
pub(crate) async fn load_after(server: &Own, allowed: &[Risk], statements: &[&str]) -> Verdict {
    let database = Database::on(server.url().await);
    open(&database.url()).await;
    let options = allowed.iter().fold(Inbox::<Db>::options(), |options, risk| options.allow(*risk));
    let shop = Shop { inbox: options.connect(&database.url()).await.unwrap(), database };
    for statement in statements {
        shop.execute(statement).await;
    }
    load(server, &shop, 1).await
}

/// The load on a server that was told to forget is found losing, at the first kill or soon: what a crash forgets may be
/// nothing by chance.
pub(crate) async fn is_found_losing(allowed: &[Risk], statements: &[&str]) {
    let server = Own::start(SERVICE).await;
    for _ in 0..5 {
        let Verdict { lost, doubled } = load_after(&server, allowed, statements).await;
        println!("lost {lost}");
        assert_eq!(doubled, 0);
        if lost > 0 {
            return;
        }
    }
    panic!("five kills, and nothing was lost");
}
