//! A server whose database and sessions know three-byte characters only, and cut off what they don't.

use inboxed::{Inbox, Outcome, idempotent};
use sqlx::Executor as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use super::{Connection, Shop, consumer, deliver, effect};
use crate::common::{Event, event};

/// Writes what such a session can hold.
#[idempotent(key = "event:{id}")]
async fn record_escaped(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.id.escape_default().to_string()).await?)
}

#[tokio::test]
async fn m05_three_byte_session_that_is_not_strict_keeps_four_byte_keys_apart() {
    let shop = Shop::open().await;
    let options = shop.url().parse::<MySqlConnectOptions>().unwrap();
    let options = options.charset("utf8mb3").collation("utf8mb3_general_ci");
    let lax = MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET sql_mode = ''").await.map(drop) })
    });
    let app = consumer(Inbox::new(lax.connect_with(options).await.unwrap())).handle("events", record_escaped);
    let ids = ["ord-\u{1f418}-1", "ord-\u{1f418}-2", "ord-", "ord-?-1"];
    for expected in [Outcome::Done, Outcome::Duplicate] {
        for id in ids {
            assert_eq!(deliver(&app, "events", event(id)).await, expected, "{id}");
        }
    }
    assert_eq!(shop.effects().await.len(), ids.len());
}
