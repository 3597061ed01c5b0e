//! What outlives its deadline is ended on the server, and its key is free.

use std::time::Instant;

use sqlx::Executor as _;

use super::*;
use crate::error::{Class, Error};
use crate::store::suite::{FRESH, begin, claim, deliver, effect, effects, eventually, ready};

/// Sessions in a transaction or a statement, beside the one that asks.
async fn busy(fixture: &PgDatabase) -> i64 {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'";
    count(fixture.inbox(), busy).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_stuck_in_pg_sleep_is_ended_and_its_key_is_free() {
    let fixture = ready::<PgDatabase>().await;
    let another = fixture.another().await;
    deliver(&another, &claim("order:0")).await.unwrap();
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap();
    tokio::time::timeout(Duration::from_millis(200), tx.execute("SELECT pg_sleep(60)")).await.unwrap_err();
    let deadline = Instant::now();
    Postgres::close(tx).await;
    assert_eq!(busy(&fixture).await, 0, "a session was left behind");
    assert_eq!(deliver(&another, &claim("order:1")).await.unwrap(), FRESH);
    // One second where nothing else runs; a machine under load is given more.
    assert!(deadline.elapsed() < Duration::from_secs(5), "{:?}", deadline.elapsed());
    assert_eq!(effects(fixture.inbox()).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_body_stuck_in_pg_sleep_is_ended_too() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tokio::time::timeout(Duration::from_millis(200), tx.execute("SELECT pg_sleep(60)")).await.unwrap_err();
    drop(tx);
    eventually("the session has ended", || busy(&fixture), |busy| *busy == 0).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_ends_a_statement_at_the_deadline_by_itself() {
    let fixture = ready::<PgDatabase>().await;
    for _ in 0..2 {
        let (mut tx, _) = Postgres::begin(fixture.inbox(), &[claim("order:1")], HASTY).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), tx.execute("SELECT pg_sleep(60)")).await;
        let error = ended.expect("it slept on").unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "57014");
        assert_eq!(Error::from(error).class(), Class::Failure, "the body's own deadline is counted");
        Postgres::rollback(tx).await;
    }
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_ends_a_transaction_whose_process_hangs() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = Postgres::begin(fixture.inbox(), &[claim("order:1")], HASTY).await.unwrap();
    eventually("the session has ended", || busy(&fixture), |busy| *busy == 0).await;
    let error = Error::from(effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap_err());
    assert_eq!(error.class(), Class::Unavailable);
    Postgres::close(tx).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transaction_has_its_own_limits() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = Inbox::<Postgres>::options().max_connections(1).connect(&fixture.url()).await.unwrap();
    let long = Limits { claim: Duration::from_secs(20), run: Duration::from_secs(20) };
    for (number, (limits, commit, expected)) in [
        (HASTY, true, "950ms"),
        (HASTY, true, "950ms"),
        (long, false, "20250ms"),
        (long, true, "20250ms"),
        (HASTY, false, "950ms"),
        (HASTY, true, "950ms"),
        (long, true, "20250ms"),
    ]
    .into_iter()
    .enumerate()
    {
        let claims = [claim(&format!("order:{number}"))];
        let (mut tx, _) = Postgres::begin(&inbox, &claims, limits).await.unwrap();
        let shown = Postgres::run(&mut tx, "SHOW statement_timeout", Vec::new()).await.unwrap();
        assert_eq!(shown[0].text(0).unwrap(), expected, "transaction {number}");
        if commit {
            Postgres::commit(tx).await.unwrap();
        } else {
            Postgres::rollback(tx).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_a_claim_that_waits_too_long_leaves_no_session_behind() {
    let fixture = ready::<PgDatabase>().await;
    let (tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    for claims in [vec![claim("order:1")], vec![claim("order:1"), claim("order:2")]] {
        let refused = Postgres::begin(fixture.inbox(), &claims, HASTY).await.map(|(_, verdicts)| verdicts).unwrap_err();
        assert_eq!(refused.class(), Class::Unavailable);
        eventually("only the holder's session is busy", || busy(&fixture), |busy| *busy == 1).await;
    }
    Postgres::rollback(tx).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:2")).await.unwrap(), FRESH);
}
