//! Transactions that meet.

use sqlx::Executor as _;

use super::*;
use crate::error::{Class, Error};
use crate::store::suite::{FRESH, begin, claim, deliver, effect, effects, number, ready, rows};

/// One message that updates two rows in its own order: claim, effects, commit.
async fn transfer(inbox: &Inbox<Postgres>, key: &str, order: [u32; 2]) -> Result<(), Error> {
    let (mut tx, verdicts) = Postgres::begin(inbox, &[claim(key)], crate::store::suite::LIMITS).await?;
    assert_eq!(verdicts, [FRESH]);
    let updated = async {
        for row in order {
            let update = format!("UPDATE stock SET moves = moves + 1 WHERE id = {row}");
            tx.execute(AssertSqlSafe(update)).await?;
        }
        effect::<Postgres>(&mut tx, &claim(key)).await
    };
    match updated.await {
        Ok(()) => Postgres::commit(tx).await.map_err(|error| Error::from(format!("{error:?}"))),
        Err(error) => {
            Postgres::rollback(tx).await;
            Err(error.into())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p04_deadlocks_are_run_again_and_have_every_effect() {
    let fixture = ready::<PgDatabase>().await;
    ask(fixture.inbox(), "CREATE TABLE stock AS SELECT id, 0 AS moves FROM (VALUES (1), (2)) AS row (id)").await;
    let mut options = fixture.options();
    options = options.options([("deadlock_timeout", "20ms")]);
    let inbox = Inbox::new(sqlx::PgPool::connect_with(options).await.unwrap());
    let workers = (0..4).map(|worker| {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            let mut met = 0;
            for pair in 0..100 {
                let order = if worker % 2 == 0 { [1, 2] } else { [2, 1] };
                while let Err(error) = transfer(&inbox, &format!("move:{worker}:{pair}"), order).await {
                    assert_eq!(error.class(), Class::Contention, "{error:?}");
                    met += 1;
                }
            }
            met
        })
    });
    let mut met = 0;
    for worker in workers.collect::<Vec<_>>() {
        met += worker.await.unwrap();
    }
    assert!(met > 0, "no deadlock happened, so nothing was shown");
    assert_eq!((effects(&inbox).await, rows(&inbox).await), (400, 400));
    assert_eq!(number(&inbox, "SELECT sum(moves) FROM stock").await, 800);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_overlap_in_any_order_have_one_effect_each() {
    let fixture = ready::<PgDatabase>().await;
    let workers = (0..6).map(|worker| {
        let inbox = fixture.inbox().clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let mut claims =
                    (0..12).map(|number| claim(&format!("order:{}", round * 8 + number))).collect::<Vec<_>>();
                fastrand::Rng::with_seed(worker).shuffle(&mut claims);
                let (mut tx, verdicts) = Postgres::begin(&inbox, &claims, crate::store::suite::LIMITS).await.unwrap();
                for (claim, verdict) in claims.iter().zip(verdicts) {
                    if verdict == FRESH {
                        effect::<Postgres>(&mut tx, claim).await.unwrap();
                    }
                }
                Postgres::commit(tx).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let distinct = number(fixture.inbox(), "SELECT COUNT(DISTINCT effect_key) FROM effects").await;
    assert_eq!((effects(fixture.inbox()).await, distinct, rows(fixture.inbox()).await), (164, 164, 164));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_pruning_goes_past_a_claim_that_is_open() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = fixture.inbox();
    let id = crate::store::suite::registry::register(inbox, "shop", "queue", &["orders"]).await.unwrap();
    for number in 0..20 {
        deliver(inbox, &claim(&format!("order:{number}"))).await.unwrap();
    }
    ask(inbox, "UPDATE {inbox} SET received_at = 0").await;
    let (tx, _) = begin(inbox, &claim("order:10b")).await;
    let pruned = tokio::time::timeout(Duration::from_secs(20), inbox.prune(id, Duration::from_mins(1))).await;
    assert_eq!(pruned.expect("it waited for a claim that is open").unwrap().rows, 20);
    Postgres::commit(tx).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_fifty_messages_a_second_go_through_while_many_rows_are_pruned() {
    crate::store::suite::pruning::fifty_messages_a_second_go_through_while_many_rows_are_pruned::<PgDatabase>().await;
}
