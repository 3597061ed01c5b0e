//! Bodies that lock the same rows in opposite orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{State, idempotent};
use serde::Deserialize;

use super::shop::{Shop, effect};
use super::{Connection, MOVE};
use crate::wait::within;

const PAIRS: u64 = 100;

#[derive(Deserialize)]
struct Move {
    id: String,
    from: i64,
    to: i64,
}

/// How often a body was entered.
#[derive(Clone, Default)]
struct Entered(Arc<AtomicU64>);

/// Updates two rows in the order that the message names.
#[idempotent(key = "move:{id}")]
async fn move_stock(message: Move, tx: &mut Connection, State(entered): State<Entered>) -> inboxed::Result<()> {
    entered.0.fetch_add(1, Ordering::SeqCst);
    sqlx::query(MOVE).bind(message.from).execute(&mut *tx).await?;
    // So that another body takes the other row meanwhile.
    tokio::time::sleep(Duration::from_millis(2)).await;
    sqlx::query(MOVE).bind(message.to).execute(&mut *tx).await?;
    Ok(effect(tx, &message.id).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p04_rows_locked_in_opposite_orders_have_every_effect_and_no_dead_letter() {
    let shop = Shop::open().await;
    shop.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, moves BIGINT NOT NULL)").await;
    shop.execute("INSERT INTO stock VALUES (1, 0), (2, 0)").await;
    let broker = Memory::new();
    for pair in 0..PAIRS {
        broker.publish("moves", format!(r#"{{"id":"{pair} a","from":1,"to":2}}"#));
        broker.publish("moves", format!(r#"{{"id":"{pair} b","from":2,"to":1}}"#));
    }
    broker.end_when_settled("moves");
    let entered = Entered::default();
    let app = shop.consumer().concurrency(4).state(entered.clone()).handle("moves", move_stock);
    within("all moves", app.run_until(broker.clone(), std::future::pending())).await.unwrap();

    let mut effects = shop.effects().await;
    effects.dedup();
    assert_eq!((effects.len() as u64, shop.claims().await.cast_unsigned()), (2 * PAIRS, 2 * PAIRS));
    assert_eq!(shop.number("SELECT COUNT(*) FROM effects").await.cast_unsigned(), 2 * PAIRS);
    for row in [1, 2] {
        let moves = shop.number(&format!("SELECT moves FROM stock WHERE id = {row}")).await;
        assert_eq!(moves.cast_unsigned(), 2 * PAIRS);
    }
    assert!(entered.0.load(Ordering::SeqCst) > 2 * PAIRS, "there were deadlocks");
    assert!(shop.letters().await.is_empty());
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0, "a deadlock is no failure of the body");
}
