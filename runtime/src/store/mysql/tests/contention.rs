//! Claims under the defaults of many servers: locks between keys, folded letters, three-byte characters.

use sqlx::mysql::MySqlConnectOptions;

use super::*;
use crate::error::Class;
use crate::store::suite::begin;
use crate::store::suite::{FRESH, Fixture as _, claim, deliver, effects, number, ready, verdict};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m02_new_and_repeated_keys_at_once_have_one_effect_each() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let isolation = ask(fixture.inbox(), "SELECT @@global.tx_isolation").await;
    assert_eq!(isolation[0].text(0).unwrap(), "REPEATABLE-READ", "the server's default, under which gaps are locked");
    let mut random = fastrand::Rng::with_seed(2);
    let mut keys = (0..2_000).map(|_| format!("evt:{:016x}", random.u64(..))).collect::<Vec<_>>();
    let repeated = keys[..200].to_vec();
    keys.extend((0..200).map(|_| format!("evt:{:016x}", random.u64(..))));
    keys.extend(repeated);
    random.shuffle(&mut keys);
    let keys = std::sync::Arc::new(keys);
    let workers = (0..20).map(|worker| {
        let (inbox, keys) = (fixture.inbox().clone(), std::sync::Arc::clone(&keys));
        tokio::spawn(async move {
            for key in keys.iter().skip(worker).step_by(20) {
                // As the pipeline does, should two transactions meet after all.
                while let Err(error) = deliver(&inbox, &claim(key)).await {
                    assert_eq!(error.class(), Class::Contention, "{error:?}");
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let distinct = number(fixture.inbox(), "SELECT COUNT(DISTINCT effect_key) FROM effects").await;
    assert_eq!((effects(fixture.inbox()).await, distinct), (2_200, 2_200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_overlap_in_any_order_have_one_effect_each() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let workers = (0..6).map(|worker| {
        let inbox = fixture.inbox().clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let mut claims =
                    (0..12).map(|number| claim(&format!("order:{}", round * 8 + number))).collect::<Vec<_>>();
                fastrand::Rng::with_seed(worker).shuffle(&mut claims);
                let (mut tx, verdicts) = MySql::begin(&inbox, &claims, crate::store::suite::LIMITS).await.unwrap();
                for (claim, verdict) in claims.iter().zip(verdicts) {
                    if verdict == FRESH {
                        crate::store::suite::effect::<MySql>(&mut tx, claim).await.unwrap();
                    }
                }
                MySql::commit(tx).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let distinct = number(fixture.inbox(), "SELECT COUNT(DISTINCT effect_key) FROM effects").await;
    let rows = crate::store::suite::rows(fixture.inbox()).await;
    assert_eq!((effects(fixture.inbox()).await, distinct, rows), (164, 164, 164));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m05_a_three_byte_session_that_is_not_strict_keeps_four_byte_keys_apart() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let options =
        fixture.url().parse::<MySqlConnectOptions>().unwrap().charset("utf8mb3").collation("utf8mb3_general_ci");
    let pool = sqlx::mysql::MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { sqlx::Executor::execute(connection, "SET sql_mode = ''").await.map(drop) })
    });
    let inbox = Inbox::new(pool.connect_with(options).await.unwrap());
    let written = |text: &str| {
        let key = crate::key::KeyWriter::new().literal("ord:").part("id", text).unwrap().finish().unwrap();
        claim(key.as_str())
    };
    for text in ["\u{1f418}-1", "\u{1f418}-2"] {
        assert_eq!(deliver(&inbox, &written(text)).await.unwrap(), FRESH);
        let failures = inbox.record_failure(&written(text), "no \u{1f418} in stock").await.unwrap();
        assert_eq!(failures, 1, "an error of any text is kept");
    }
    assert_eq!(effects(fixture.inbox()).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_claims_survive_their_holders_rollback() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    for round in 0..10 {
        let key = format!("order:{round}");
        let (tx, _) = begin(fixture.inbox(), &claim(&key)).await;
        let waiting = (0..6).map(|_| {
            let (inbox, key) = (fixture.inbox().clone(), key.clone());
            tokio::spawn(async move { deliver(&inbox, &claim(&key)).await })
        });
        let waiting = waiting.collect::<Vec<_>>();
        tokio::time::sleep(Duration::from_millis(50)).await;
        MySql::rollback(tx).await;
        for copy in waiting {
            copy.await.unwrap().unwrap();
        }
        assert_eq!(effects(fixture.inbox()).await, round + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_pruning_goes_past_a_claim_that_is_open() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = fixture.inbox();
    let id = crate::store::suite::registry::register(inbox, "shop", "queue", &["orders"]).await.unwrap();
    for number in 0..20 {
        deliver(inbox, &claim(&format!("order:{number}"))).await.unwrap();
    }
    crate::store::suite::execute(inbox, "UPDATE {inbox} SET received_at = 0", vec![]).await;
    let (tx, _) = begin(inbox, &claim("order:10b")).await;
    let pruned = tokio::time::timeout(Duration::from_secs(5), inbox.prune(id, Duration::from_mins(1))).await;
    assert_eq!(pruned.expect("it waited for a claim that is open").unwrap().rows, 20);
    MySql::commit(tx).await.unwrap();
    assert_eq!(verdict(inbox, &claim("order:10b")).await, crate::store::suite::DUPLICATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_fifty_messages_a_second_go_through_while_many_rows_are_pruned() {
    crate::store::suite::pruning::fifty_messages_a_second_go_through_while_many_rows_are_pruned::<fixture::MySqlDatabase>().await;
}
