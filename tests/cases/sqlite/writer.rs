//! The one writer of a database file, wanted by several processes.

use inboxed::memory::Memory;
use inboxed::{Inbox, idempotent};

use super::{Connection, Db, Shop, consumer, effect, run_dry};
use crate::common::{Event, child, event};

const MESSAGES: usize = 1_000;

/// Reads, and then writes what it read.
#[idempotent(key = "event:{id}")]
async fn read_then_write(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
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
        let inbox = Inbox::<Db>::connect(&database).await.unwrap();
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
