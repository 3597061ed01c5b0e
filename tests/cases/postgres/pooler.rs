//! `PgBouncer` in transaction mode, with a single connection to the server.

use inboxed::memory::Memory;
use inboxed::{Inbox, idempotent};
use sqlx::Connection as _;

use super::{Connection, Shop, consumer, effect, run_dry};
use crate::common::services::shared;
use crate::common::{Event, event};

/// Prepares its statements as sqlx does by default, and has a part of its own.
#[idempotent(key = "event:{id}")]
async fn in_parts(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    let known: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM effects WHERE message = $1")
        .bind(&message.id)
        .fetch_one(&mut *tx)
        .await?;
    assert_eq!(known, 0);
    let mut part = tx.begin().await?;
    effect(&mut part, &message.id).await?;
    Ok(part.commit().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_four_workers_behind_a_transaction_pooler_have_every_effect_once() {
    let shop = Shop::open().await;
    let through_pooler = Inbox::connect(&shop.database.through(&shared("INBOXED_PGBOUNCER_URL"))).await.unwrap();
    let broker = Memory::new();
    let ids = (0..500).map(|id| format!("{id:03}")).collect::<Vec<_>>();
    for id in ids.iter().chain(&ids[..50]) {
        broker.publish("events", event(id));
    }
    let app = consumer(through_pooler).concurrency(4).handle("events", in_parts);
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ids);
    assert_eq!(broker.counts("events").deliveries, 550, "no transaction met what another client had prepared");
    assert!(shop.letters().await.is_empty());
}
