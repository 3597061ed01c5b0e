//! A lock that a body waits for in vain.

use std::time::Duration;

use inboxed::{Inbox, Outcome, idempotent};
use sqlx::pool::PoolOptions;
use sqlx::{Connection as _, Executor as _};

use super::{BEGIN, Connection, Db, HASTY, Shop, consumer, deliver, effect};
use crate::common::{Event, at_once, event};

const TAKE: &str = "UPDATE stock SET moves = moves + 1 WHERE id = 1";

/// Writes before and after it takes from the stock, and swallows what it meets there if its id says so.
#[idempotent(key = "event:{id}", timeout = "1500ms")]
async fn take(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, "first").await?;
    let taken = tx.execute(TAKE).await;
    if message.id == "swallows" {
        let _ = effect(tx, "second").await;
        return Ok(());
    }
    taken?;
    Ok(effect(tx, "second").await?)
}

/// A body whose sessions lose patience before its own time is up keeps all of its work or nothing.
async fn all_or_nothing(id: &str) {
    let shop = Shop::open().await;
    shop.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, moves BIGINT NOT NULL)").await;
    shop.execute("INSERT INTO stock VALUES (1, 0)").await;
    let hasty = PoolOptions::<Db>::new()
        .after_connect(|connection, _| Box::pin(async move { connection.execute(HASTY).await.map(drop) }));
    let pool = hasty.connect_with(shop.inbox.pool().connect_options().as_ref().clone()).await.unwrap();
    let app = consumer(Inbox::new(pool)).retry(at_once(5)).handle("events", take);

    // What a consumer does at its start isn't to meet the lock.
    assert_eq!(deliver(&app, "events", event("before")).await, Outcome::Done);

    let mut holder = Connection::connect(&shop.url()).await.unwrap();
    holder.execute(BEGIN).await.unwrap();
    holder.execute(TAKE).await.unwrap();
    assert!(matches!(deliver(&app, "events", event(id)).await, Outcome::Retry(_)));
    assert_eq!((shop.effects().await.len(), shop.claims().await), (2, 1), "of the first message");

    let released = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        holder.execute("COMMIT").await.unwrap();
    };
    tokio::join!(deliver(&app, "events", event(id)), released);
    // Only where the session's patience is the body's affair may a second attempt have met the lock as well.
    let outcome = deliver(&app, "events", event(id)).await;
    assert!(matches!(outcome, Outcome::Done | Outcome::Duplicate), "{outcome:?}");
    assert_eq!(shop.effects().await, ["first", "first", "second", "second"]);
    assert_eq!(shop.number("SELECT moves FROM stock").await, 3, "twice by us, and once by the other");
}

#[tokio::test]
async fn m07_body_that_returns_the_error_of_a_lock_keeps_nothing() {
    all_or_nothing("returns").await;
}

#[tokio::test]
async fn m07_body_that_swallows_the_error_of_a_lock_keeps_all_or_nothing() {
    all_or_nothing("swallows").await;
}
