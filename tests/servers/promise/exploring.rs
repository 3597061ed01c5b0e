//! Crashes at every point of the one order, in the process and by `abort` in child processes.

use inboxed::testing::explore;
use inboxed::{Consumer, idempotent};
use serde::Deserialize;

use super::{Connection, Database, effect, open};

#[derive(Deserialize)]
struct Order {
    id: u32,
}

#[idempotent(key = "order:{id}")]
async fn ship(order: Order, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &order.id.to_string()).await?)
}

#[tokio::test]
async fn handler_that_keeps_the_rules_is_exact_in_process_and_by_abort() {
    // A child is given the parent's database and makes none of its own.
    let database = Database::default();
    let url = database.url();
    let process = |url: String| async move { Consumer::new("shop", open(&url).await).handle("orders", ship) };
    let explored = explore("orders", &url, process).key_fields(["id"]).in_child_processes().effects(move |n| {
        let url = url.clone();
        async move {
            let count = format!("SELECT COUNT(*) FROM effects WHERE message = '{n}'");
            let inbox = open(&url).await;
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(inbox.pool()).await.unwrap();
            count.cast_unsigned()
        }
    });
    let report = explored.run().await.unwrap_or_else(|found| panic!("{found}"));
    assert_eq!((report.crashes, report.scenarios), (16, 21), "eight points, each twice");
}
