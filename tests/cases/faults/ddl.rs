//! Bodies that make tables, which some databases commit by themselves.

use inboxed::{Inbox, Outcome, idempotent};
use sqlx::Executor as _;

use super::{Connection, DDL_IN_BODIES, Shop, consumer, deliver, effect};
use crate::common::{Event, event};

/// Makes a table after its effect, and ends as its id says.
#[idempotent(key = "event:{id}")]
async fn make_a_table(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    if message.id == "makes none" {
        return Ok(());
    }
    let made = tx.execute("CREATE TABLE made (id BIGINT)").await;
    match message.id.as_str() {
        "passes the error on" => Ok(made.map(drop)?),
        "fails" => Err("after the table was made".into()),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn m08_table_made_in_a_body_parts_no_claim_from_its_effect() {
    let rolled_back = |outcome| matches!(outcome, Outcome::Retry(_));
    for (id, done) in [("fails", false), ("passes the error on", DDL_IN_BODIES), ("swallows the error", true)] {
        let shop = Shop::open().await;
        let inbox = Inbox::options().max_connections(1).connect(&shop.url()).await.unwrap();
        let app = consumer(inbox).handle("events", make_a_table);
        let outcome = deliver(&app, "events", event(id)).await;
        assert!(if done { outcome == Outcome::Done } else { rolled_back(outcome) }, "{id}: {outcome:?}");
        let kept = if done { vec![id] } else { vec![] };
        assert_eq!(shop.effects().await, kept, "{id}");
        assert_eq!((shop.claims().await, shop.counted().await), (i64::from(done), i64::from(!done)), "{id}");
        let made = sqlx::raw_sql("SELECT * FROM made").execute(shop.inbox.pool()).await.is_ok();
        assert_eq!(made, done && DDL_IN_BODIES, "{id}");

        // The next message on the same connection has a true transaction.
        sqlx::raw_sql("DROP TABLE IF EXISTS made").execute(shop.inbox.pool()).await.unwrap();
        assert!(rolled_back(deliver(&app, "events", event("fails")).await), "{id}");
        assert_eq!(deliver(&app, "events", event("makes none")).await, Outcome::Done, "{id}");
        assert_eq!(shop.claims().await, 1 + i64::from(done), "{id}");
        assert_eq!(shop.effects().await.len(), 1 + usize::from(done), "{id}");
    }
}
