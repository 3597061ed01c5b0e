//! Bodies that lock the same rows in opposite orders.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{State, idempotent};
use serde::Deserialize;

use super::{Connection, DEADLOCKS, Shop, effect, run_dry, sql};
use crate::common::at_once;

const MOVE: &str = "UPDATE stock SET moves = moves + 1 WHERE id = ?";
const PAIRS: u64 = 200;

#[derive(Deserialize)]
struct Move {
    id: String,
    from: i64,
    to: i64,
    /// Whether the body goes on after the error of its second update.
    swallows: bool,
}

/// How often a body was entered.
#[derive(Clone, Default)]
struct Entered(Arc<AtomicU64>);

/// Updates two rows in the order that the message names.
#[idempotent(key = "move:{id}")]
async fn move_stock(message: Move, tx: &mut Connection, State(entered): State<Entered>) -> inboxed::Result<()> {
    entered.0.fetch_add(1, Ordering::SeqCst);
    sqlx::query(sql(MOVE)).bind(message.from).execute(&mut *tx).await?;
    // So that another body takes the other row meanwhile.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = sqlx::query(sql(MOVE)).bind(message.to).execute(&mut *tx).await;
    if message.swallows {
        // Nor does it look at what becomes of its effect.
        let _ = effect(tx, &message.id).await;
        return Ok(());
    }
    second?;
    Ok(effect(tx, &message.id).await?)
}

/// Bodies return the error of a deadlock, or swallow it.
async fn every_move_is_made_once(swallows: bool) {
    let shop = Shop::open().await;
    shop.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, moves BIGINT NOT NULL)").await;
    shop.execute("INSERT INTO stock VALUES (1, 0), (2, 0)").await;
    let broker = Memory::new();
    for pair in 0..PAIRS {
        for (side, from, to) in [("a", 1, 2), ("b", 2, 1)] {
            let id = format!("{pair} {side}");
            let message = serde_json::json!({ "id": id, "from": from, "to": to, "swallows": swallows });
            broker.publish("moves", message.to_string());
        }
    }
    let entered = Entered::default();
    // One attempt where a deadlock mustn't count as one. What a body swallowed is its own failure.
    let attempts = if swallows { 1_000 } else { 1 };
    let app = shop.consumer().retry(at_once(attempts)).concurrency(4).state(entered.clone());
    run_dry(&app.handle("moves", move_stock), &broker, &["moves"]).await;

    let effects = shop.effects().await;
    let distinct = effects.iter().collect::<BTreeSet<_>>().len() as u64;
    assert_eq!((effects.len() as u64, distinct), (2 * PAIRS, 2 * PAIRS));
    assert_eq!(shop.claims().await.cast_unsigned(), 2 * PAIRS);
    for row in [1, 2] {
        let moves = shop.number(&format!("SELECT moves FROM stock WHERE id = {row}")).await;
        assert_eq!(moves.cast_unsigned(), 2 * PAIRS);
    }
    assert_eq!(entered.0.load(Ordering::SeqCst) > 2 * PAIRS, DEADLOCKS, "whether there were deadlocks");
    assert!(shop.letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p04_rows_locked_in_opposite_orders_have_every_effect_and_no_dead_letter() {
    every_move_is_made_once(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p04_deadlocks_that_bodies_swallow_part_no_claim_from_its_effect() {
    every_move_is_made_once(true).await;
}
