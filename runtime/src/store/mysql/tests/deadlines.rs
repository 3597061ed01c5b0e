//! What outlives its deadline is ended on the server, and its key is free.

use std::time::Instant;

use sqlx::Executor as _;

use super::*;
use crate::error::Class;
use crate::store::suite::{FRESH, Fixture as _, begin, claim, deliver, effect, effects, eventually, ready};

/// Sessions in which a body still sleeps, or that still hold a transaction.
async fn left(fixture: &fixture::MySqlDatabase) -> i64 {
    let name = fixture.name();
    fixture
        .number(&format!(
            "SELECT COUNT(*) FROM information_schema.processlist AS session LEFT JOIN information_schema.innodb_trx \
             AS trx ON trx.trx_mysql_thread_id = session.id WHERE session.db = '{name}' \
             AND session.id <> CONNECTION_ID() AND (session.info LIKE '%SLEEP%' OR trx.trx_id IS NOT NULL)"
        ))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_stuck_in_sleep_is_ended_and_its_key_is_free() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    tokio::time::timeout(Duration::from_millis(200), tx.execute("SELECT SLEEP(60)")).await.unwrap_err();
    let deadline = Instant::now();
    MySql::close(tx).await;
    assert_eq!(left(&fixture).await, 0, "a session was left behind");
    assert_eq!(deliver(&fixture.another().await, &claim("order:1")).await.unwrap(), FRESH);
    assert!(deadline.elapsed() < Duration::from_secs(5), "{:?}", deadline.elapsed());
    assert_eq!(effects(fixture.inbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_body_stuck_in_sleep_is_ended_too() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tokio::time::timeout(Duration::from_millis(200), tx.execute("SELECT SLEEP(60)")).await.unwrap_err();
    drop(tx);
    eventually("the session has ended", || left(&fixture), |left| *left == 0).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_ends_a_statement_at_the_deadline_by_itself() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = MySql::begin(fixture.inbox(), &[claim("order:1")], HASTY).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), tx.execute("SELECT SLEEP(60)")).await;
    let error = crate::error::Error::from(ended.expect("it slept on").unwrap_err());
    assert_eq!(error.class(), Class::Failure, "{error:?}");
    MySql::rollback(tx).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_transaction_whose_process_hangs_is_ended_by_the_server() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = MySql::begin(fixture.inbox(), &[claim("order:1")], HASTY).await.unwrap();
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    let session = MySql::run(&mut tx, "SELECT CONNECTION_ID()", Vec::new()).await.unwrap()[0].int(0).unwrap();
    let still_there = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {session}");
    assert_eq!(fixture.number(&still_there).await, 1);
    eventually("the session has ended", || fixture.number(&still_there), |left| *left == 0).await;
    assert!(MySql::commit(tx).await.is_err());
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_outlives_the_time_that_a_transaction_may_stand_idle() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = MySql::begin(fixture.inbox(), &[claim("order:1")], HASTY).await.unwrap();
    let settings = "SELECT @@idle_transaction_timeout, @@wait_timeout";
    let rows = MySql::run(&mut tx, settings, Vec::new()).await.unwrap();
    assert!((2..=6).contains(&rows[0].int(0).unwrap()), "{rows:?}");
    assert_eq!(rows[0].int(1).unwrap(), 28_800, "between two messages it would end too");
    MySql::rollback(tx).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waits_too_long_leaves_no_session_behind() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    for claims in [vec![claim("order:1")], vec![claim("order:1"), claim("order:2")]] {
        let refused = MySql::begin(fixture.inbox(), &claims, HASTY).await.map(|(_, verdicts)| verdicts).unwrap_err();
        assert_eq!(refused.class(), Class::Unavailable);
        assert_eq!(left(&fixture).await, 1, "only the holder's transaction is open");
    }
    MySql::rollback(tx).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}
