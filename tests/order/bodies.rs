//! What a body may do with its transaction, and what it may not: nothing of the latter is committed or acknowledged.

use inboxed::{Outcome, idempotent};
use serde::Deserialize;
use sqlx::{Connection as _, Executor as _, SqliteConnection};

use super::support::{Order, Shop, deliver, effect};

#[idempotent(key = "order:{id}")]
async fn commits_a_part(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let mut part = tx.begin().await?;
    effect(&mut part, order.id).await?;
    Ok(part.commit().await?)
}

#[tokio::test]
async fn begin_and_commit_is_a_part_of_the_transaction() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", commits_a_part);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Duplicate);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 1));
}

#[idempotent(key = "order:{id}")]
async fn commits_a_part_and_fails(order: Order, tx: &mut SqliteConnection) -> Result<(), String> {
    let mut part = tx.begin().await.map_err(|error| error.to_string())?;
    effect(&mut part, order.id).await.map_err(|error| error.to_string())?;
    part.commit().await.map_err(|error| error.to_string())?;
    Err("after its part was committed".to_owned())
}

#[tokio::test]
async fn error_after_begin_and_commit_rolls_the_part_back() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", commits_a_part_and_fails);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
}

#[idempotent(key = "order:{id}")]
async fn drops_a_part(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    let mut part = tx.begin().await?;
    effect(&mut part, 1_000).await?;
    drop(part);
    Ok(effect(tx, order.id + 1).await?)
}

#[tokio::test]
async fn dropped_part_is_rolled_back_and_the_rest_commits() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", drops_a_part);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.number("SELECT SUM(id) FROM effects").await), (1, 7 + 8));
}

#[idempotent(key = "order:{id}")]
async fn drops_a_part_at_the_end(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    let mut part = tx.begin().await?;
    effect(&mut part, 1_000).await?;
    Ok(())
}

/// sqlx rolls a dropped transaction back with the connection's next statement, which is then the commit's.
#[tokio::test]
async fn part_dropped_at_the_end_is_rolled_back_and_the_rest_commits() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", drops_a_part_at_the_end);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.number("SELECT SUM(id) FROM effects").await), (1, 7));
}

#[idempotent(key = "order:{id}")]
async fn forgets_a_part(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    std::mem::forget(tx.begin().await?);
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn part_left_open_is_not_committed() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", forgets_a_part);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
    assert_eq!(shop.number("SELECT last_error LIKE '%left a transaction open%' FROM inbox_attempts").await, 1);
}

#[idempotent(key = "order:{id}")]
async fn fails_in_a_part(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    let mut part = tx.begin().await?;
    part.execute("INSERT INTO no_such_table VALUES (1)").await?;
    Ok(part.commit().await?)
}

#[tokio::test]
async fn error_in_a_part_rolls_everything_back() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", fails_in_a_part);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
}

/// A message whose body sends these statements after its effect, and ignores what the database answers.
#[derive(Deserialize)]
struct Careless {
    id: u64,
    statements: Vec<String>,
}

#[idempotent(key = "careless:{id}")]
async fn careless(message: Careless, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(&mut *tx, message.id).await?;
    for statement in message.statements {
        let _ = tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement))).await;
    }
    Ok(())
}

/// Delivers a careless message twice: what was left of it, and the last error.
async fn after(statements: &[&str]) -> (Shop, Outcome, String) {
    let shop = Shop::open().await;
    let unique = "CREATE TABLE taken (id INTEGER PRIMARY KEY); INSERT INTO taken VALUES (1)";
    sqlx::raw_sql(unique).execute(shop.inbox.pool()).await.unwrap();
    let consumer = shop.consumer().handle("orders", careless);
    let body = serde_json::json!({ "id": 7, "statements": statements }).to_string();
    let none: [(&str, &str); 0] = [];
    let outcome = consumer.deliver("orders", body.clone(), none).await.unwrap();
    let last =
        sqlx::query_scalar("SELECT last_error FROM inbox_attempts").fetch_optional(shop.inbox.pool()).await.unwrap();
    // Whatever state the connection was in, the next message doesn't meet it.
    let next = serde_json::json!({ "id": 8, "statements": [] }).to_string();
    assert_eq!(consumer.deliver("orders", next, none).await.unwrap(), Outcome::Done);
    sqlx::raw_sql("DELETE FROM effects WHERE id = 8; DELETE FROM inbox WHERE message_key = 'careless:8'")
        .execute(shop.inbox.pool())
        .await
        .unwrap();
    (shop, outcome, last.unwrap_or_default())
}

/// The statements end the transaction: nothing is acknowledged or kept, and the error says who did it.
async fn refused_after(statements: &[&str]) {
    let (shop, outcome, error) = after(statements).await;
    assert!(matches!(outcome, Outcome::Retry(_)), "{statements:?}: {outcome:?}");
    assert_eq!((shop.claims().await, shop.effects().await), (0, 0), "{statements:?}: what is left");
    assert_eq!(shop.failures().await, 1, "{statements:?}: it is the body's failure");
    assert!(error.contains("the body ended it by COMMIT or ROLLBACK"), "{statements:?}: {error}");
}

#[tokio::test]
async fn own_commit_keeps_nothing() {
    refused_after(&["COMMIT"]).await;
}

#[tokio::test]
async fn own_commit_and_another_transaction_keeps_nothing() {
    refused_after(&["COMMIT", "BEGIN", "INSERT INTO effects VALUES (9)"]).await;
    refused_after(&["COMMIT; BEGIN"]).await;
}

#[tokio::test]
async fn own_rollback_keeps_nothing() {
    refused_after(&["ROLLBACK"]).await;
    refused_after(&["ROLLBACK", "INSERT INTO effects VALUES (9)"]).await;
}

#[tokio::test]
async fn own_rollback_and_another_transaction_keeps_nothing() {
    refused_after(&["ROLLBACK", "BEGIN", "INSERT INTO effects VALUES (9)"]).await;
    refused_after(&["ROLLBACK; BEGIN"]).await;
    refused_after(&["ROLLBACK; BEGIN; INSERT INTO effects VALUES (9); COMMIT"]).await;
}

#[tokio::test]
async fn release_of_the_inboxs_savepoint_keeps_nothing() {
    refused_after(&["RELEASE inboxed"]).await;
}

/// The conflict clause makes SQLite roll the whole transaction back; the body doesn't look.
#[tokio::test]
async fn swallowed_error_by_which_the_database_ended_the_transaction_keeps_nothing() {
    refused_after(&["INSERT OR ROLLBACK INTO taken VALUES (1)"]).await;
    refused_after(&["INSERT OR ROLLBACK INTO taken VALUES (1)", "INSERT INTO effects VALUES (9)"]).await;
}

/// SQLite undoes the statement that failed and keeps the transaction; the body decided to go on.
#[tokio::test]
async fn swallowed_error_of_one_statement_keeps_the_rest() {
    let (shop, outcome, _) = after(&["INSERT INTO taken VALUES (1)", "INSERT INTO effects VALUES (9)"]).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 2));
}

#[tokio::test]
async fn own_savepoints_are_the_bodys_affair() {
    let statements = ["SAVEPOINT mine", "INSERT INTO effects VALUES (9)", "ROLLBACK TO mine", "RELEASE mine"];
    let (shop, outcome, _) = after(&statements).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 1));
}
