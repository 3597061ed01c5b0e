//! The one writer of a database file, wanted by several processes.

use std::sync::Arc;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Inbox, Outcome, State, idempotent};
use sqlx::{Sqlite, SqliteConnection};
use tokio::sync::Notify;

use crate::common::{Event, Shop, child, consumer, deliver, effect, event, run_dry, within};

const MESSAGES: usize = 1_000;

/// Reads, and then writes what it read.
#[idempotent(key = "event:{id}")]
async fn read_then_write(message: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let balance: i64 = sqlx::query_scalar("SELECT cents FROM balance").fetch_one(&mut *tx).await?;
    sqlx::query("UPDATE balance SET cents = ?").bind(balance + 1).execute(&mut *tx).await?;
    Ok(effect(tx, &message.id).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_read_then_write_from_two_processes_meets_no_lock_and_loses_no_update() {
    if let Some((half, database)) = child::role() {
        let broker = Memory::new();
        let (first, last) = if half == "first" { (0, 600) } else { (400, MESSAGES) };
        for id in first..last {
            broker.publish("events", event(&id.to_string()));
        }
        let inbox = Inbox::<Sqlite>::connect(&database).await.unwrap();
        let app = consumer(inbox).concurrency(8).handle("events", read_then_write);
        run_dry(&app, &broker, &["events"]).await;
        assert_eq!(broker.counts("events").deliveries, 600, "a lock that is waited for gives no message back");
        return;
    }
    let shop = Shop::open().await;
    shop.execute("CREATE TABLE balance (cents INTEGER); INSERT INTO balance VALUES (0)").await;
    // Two hundred messages are delivered to both.
    let children = ["first", "second"].map(|half| child::start(half, &shop.url()));
    for process in children {
        child::succeed(process).await;
    }
    assert_eq!(shop.effects().await.len(), MESSAGES);
    assert_eq!(shop.number("SELECT COUNT(DISTINCT message) FROM effects").await, 1_000);
    assert_eq!(shop.number("SELECT cents FROM balance").await, 1_000);
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);
    assert!(shop.letters().await.is_empty());
}

/// A body that says when it is entered, and waits to be let go unless it is open.
#[derive(Clone, Default)]
struct Gate {
    entered: Arc<Notify>,
    go: Arc<Notify>,
    open: bool,
    fails: bool,
}

#[idempotent(key = "event:{id}")]
async fn gated(message: Event, State(gate): State<Gate>, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    gate.entered.notify_one();
    if !gate.open {
        gate.go.notified().await;
    }
    if gate.fails { Err("rolled back".into()) } else { Ok(()) }
}

#[tokio::test]
async fn p01_second_claim_waits_for_the_first_and_takes_its_outcome() {
    let shop = Shop::open().await;
    let later = Outcome::Retry(Duration::ZERO);
    for (id, fails, outcomes) in
        [("commits", false, [Outcome::Done, Outcome::Duplicate]), ("rolls back", true, [later, Outcome::Done])]
    {
        let gate = Gate { fails, ..Gate::default() };
        let first = shop.consumer().state(gate.clone()).handle("events", gated);
        // A consumer of its own has no word with the first but the database's.
        let second = consumer(Inbox::connect(&shop.url()).await.unwrap())
            .state(Gate { open: true, ..Gate::default() })
            .handle("events", gated);
        assert_eq!(deliver(&second, "events", event(&format!("{id} before"))).await, Outcome::Done);
        let first = tokio::spawn(async move { deliver(&first, "events", event(id)).await });
        within(gate.entered.notified()).await;
        let second = tokio::spawn(async move { deliver(&second, "events", event(id)).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!second.is_finished(), "it answered before the first claim was decided");
        gate.go.notify_one();
        let found = [within(first).await.unwrap(), within(second).await.unwrap()];
        let plain = found.map(|outcome| if matches!(outcome, Outcome::Retry(_)) { later } else { outcome });
        assert_eq!(plain, outcomes, "{id}");
    }
    assert_eq!(shop.effects().await, ["commits", "commits before", "rolls back", "rolls back before"]);
}
