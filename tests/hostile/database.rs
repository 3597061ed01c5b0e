//! What a body or a pool may leave on a connection.

use inboxed::{Inbox, Outcome, idempotent};
use sqlx::SqliteConnection;

use crate::common::{Event, Shop, consumer, deliver, effect, event};

/// Makes a temporary table of a likely name, as a body that sorts mail might.
#[idempotent(key = "event:{id}")]
async fn sorts_mail(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let table = "CREATE TEMP TABLE IF NOT EXISTS inbox (consumer INTEGER NOT NULL, message_key TEXT NOT NULL, \
                 received_at INTEGER, payload INTEGER, PRIMARY KEY (consumer, message_key))";
    sqlx::raw_sql(table).execute(&mut *tx).await?;
    Ok(effect(tx, &event.id).await?)
}

#[tokio::test]
async fn temporary_table_of_the_inboxs_name_hides_no_claim() {
    let shop = Shop::open().await;
    // Of one connection, so that the second message meets what the first has left.
    let inbox = Inbox::options().max_connections(1).connect(&shop.url()).await.unwrap();
    let app = consumer(inbox).handle("events", sorts_mail);
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::Done);
    assert_eq!(deliver(&app, "events", event("2")).await, Outcome::Done);
    assert_eq!(shop.number("SELECT COUNT(*) FROM main.inbox").await, 2);
    // Another process, whose connections have no such table.
    let next = shop.consumer().handle("events", sorts_mail);
    assert_eq!(deliver(&next, "events", event("2")).await, Outcome::Duplicate);
    assert_eq!(shop.effects().await, ["1", "2"]);
}
