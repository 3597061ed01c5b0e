//! What a body may do with its transaction, and what it may not: nothing of the latter is committed or acknowledged.

use inboxed::{Consumer, Inbox, Outcome, idempotent};
use serde::Deserialize;
use sqlx::{Connection as _, Executor as _, Sqlite, SqliteConnection};

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

/// sqlx rolls a dropped transaction back in the connection's own thread, which comes to it before the commit or after we
/// have looked: many times, so that both happen.
#[tokio::test]
async fn part_dropped_at_the_end_is_rolled_back_and_the_rest_commits() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", drops_a_part_at_the_end);
    for id in 1..=100 {
        assert_eq!(deliver(&consumer, id).await, Outcome::Done, "message {id}");
    }
    assert_eq!((shop.claims().await, shop.number("SELECT SUM(id) FROM effects").await), (100, 5_050));
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
    let outcome = consumer.deliver("orders", body.clone(), ()).await.unwrap();
    let last =
        sqlx::query_scalar("SELECT last_error FROM inbox_attempts").fetch_optional(shop.inbox.pool()).await.unwrap();
    // Whatever state the connection was in, the next message doesn't meet it.
    let next = serde_json::json!({ "id": 8, "statements": [] }).to_string();
    assert_eq!(consumer.deliver("orders", next, ()).await.unwrap(), Outcome::Done);
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

#[idempotent(key = "order:{id}")]
async fn points_at_nothing(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(&mut *tx, order.id).await?;
    tx.execute("INSERT INTO lines VALUES (404)").await?;
    Ok(())
}

/// A deferred constraint is the commit's to refuse: the body has seen nothing of it.
#[tokio::test]
async fn constraint_that_refuses_the_commit_is_the_bodys_failure() {
    let shop = Shop::open().await;
    let tables = "CREATE TABLE baskets (id INTEGER PRIMARY KEY); \
                  CREATE TABLE lines (basket INTEGER REFERENCES baskets (id) DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(tables).execute(shop.inbox.pool()).await.unwrap();
    let consumer = shop.consumer().handle("orders", points_at_nothing);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await, shop.failures().await), (0, 0, 1));
    assert_eq!(shop.number("SELECT last_error LIKE '%FOREIGN KEY%' FROM inbox_attempts").await, 1);
    sqlx::raw_sql("INSERT INTO baskets VALUES (404)").execute(shop.inbox.pool()).await.unwrap();
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await), (1, 1));
}

/// A message whose body ends in this way, after it has marked its connection.
#[derive(Deserialize)]
struct Ending {
    id: u64,
    ending: String,
}

/// The mark of a connection that a body has had: a setting that no rollback undoes.
const MARK: i64 = -1_234;

/// Writes the mark that it finds on its connection, and sets it.
#[idempotent(key = "ending:{id}", timeout = "1s")]
async fn marks(message: Ending, tx: &mut SqliteConnection) -> Result<(), String> {
    let found: i64 =
        sqlx::query_scalar("PRAGMA cache_size").fetch_one(&mut *tx).await.map_err(|error| error.to_string())?;
    effect(&mut *tx, found.unsigned_abs()).await.map_err(|error| error.to_string())?;
    tx.execute(sqlx::raw_sql("PRAGMA cache_size = -1234")).await.map_err(|error| error.to_string())?;
    match message.ending.as_str() {
        "commit" => drop(tx.execute("COMMIT").await),
        "begin" => std::mem::forget(tx.begin().await),
        "panic" => panic!("as it was told to"),
        "hang" => std::future::pending().await,
        "error" => return Err("as it was told to".to_owned()),
        _ => {}
    }
    Ok(())
}

/// Delivers a message with this ending over a pool of one connection, and answers the mark that the next one finds.
async fn mark_after(ending: &str) -> i64 {
    let shop = Shop::open().await;
    let one = Inbox::<Sqlite>::options().max_connections(1).connect(&shop.url).await.unwrap();
    let consumer = Consumer::new("shop", one).handle("orders", marks);
    for (id, ending) in [(7, ending), (8, "well")] {
        let body = serde_json::json!({ "id": id, "ending": ending }).to_string();
        let outcome = consumer.deliver("orders", body, ()).await.unwrap();
        assert_eq!(outcome == Outcome::Done, ending == "well", "{ending}: {outcome:?}");
    }
    -shop.number("SELECT id FROM effects ORDER BY rowid DESC LIMIT 1").await
}

#[tokio::test]
async fn connection_whose_state_is_unknown_is_closed() {
    for ending in ["commit", "begin", "panic", "hang"] {
        assert_ne!(mark_after(ending).await, MARK, "{ending}: the connection came back");
    }
}

#[tokio::test]
async fn connection_after_a_success_or_a_plain_error_is_used_again() {
    for ending in ["well", "error"] {
        assert_eq!(mark_after(ending).await, MARK, "{ending}");
    }
}
