//! The sessions that messages run on, and what a body may leave on them.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};

use super::*;
use crate::store::CommitError;
use crate::store::suite::{
    DUPLICATE, FRESH, Fixture as _, begin, claim, deliver, effect, effects, eventually, ready, verdict,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_one_after_the_other_share_a_session() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..10 {
        let claim = claim(&format!("order:{round}"));
        let (mut tx, _) = begin(fixture.inbox(), &claim).await;
        seen.insert(session(&mut tx).await);
        if round % 2 == 0 {
            MySql::commit(tx).await.unwrap();
        } else {
            MySql::rollback(tx).await;
        }
        assert_eq!(verdict(fixture.inbox(), &claim).await == DUPLICATE, round % 2 == 0);
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_the_server_ended_are_replaced_unnoticed() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut first, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let (mut second, _) = begin(fixture.inbox(), &claim("order:2")).await;
    let sessions = [session(&mut first).await, session(&mut second).await];
    MySql::rollback(first).await;
    MySql::rollback(second).await;
    let mut server = MySqlConnection::connect(&fixture.url()).await.unwrap();
    for session in sessions {
        server.execute(AssertSqlSafe(format!("KILL CONNECTION {session}"))).await.unwrap();
    }
    for key in ["order:1", "order:2"] {
        assert_eq!(deliver(fixture.inbox(), &claim(key)).await.unwrap(), FRESH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_lost_what_was_prepared_is_replaced() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("DEALLOCATE PREPARE inboxed_commit").await.unwrap();
    assert!(matches!(MySql::commit(tx).await, Err(CommitError::Refused(_))));
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_and_no_prepared_transaction_is_left_behind() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let sessions = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
        fixture.name()
    );
    let before = fixture.number(&sessions).await;
    let inbox = fixture.another().await;
    for round in 0..5 {
        deliver(&inbox, &claim(&format!("order:{round}"))).await.unwrap();
        let (mut tx, _) = begin(&inbox, &claim("order:closed")).await;
        effect::<MySql>(&mut tx, &claim("order:closed")).await.unwrap();
        if round % 2 == 0 { MySql::close(tx).await } else { drop(tx) }
    }
    inbox.pool().close().await;
    drop(inbox);
    eventually("the sessions have ended", || fixture.number(&sessions), |count| *count <= before).await;
    let mut server = MySqlConnection::connect(&fixture.url()).await.unwrap();
    assert!(
        server.fetch_all("XA RECOVER").await.unwrap().is_empty(),
        "a prepared transaction holds its locks for ever"
    );
}

/// A second database with tables of the same names.
async fn other(fixture: &fixture::MySqlDatabase) -> fixture::MySqlDatabase {
    let other = ready::<fixture::MySqlDatabase>().await;
    fixture.execute("CREATE TABLE stock (id INT)").await;
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_uses_another_database_turns_no_other_statement_there() {
    for group in [false, true] {
        let fixture = ready::<fixture::MySqlDatabase>().await;
        let (inbox, other) = (fixture.inbox(), other(&fixture).await);
        let leave = format!("USE {}", other.name());
        inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();

        let (mut tx, _) = begin(inbox, &claim("order:1")).await;
        tx.execute(AssertSqlSafe(leave)).await.unwrap();
        inbox.forget_failures(&mut tx, &claim("order:1"), None).await.unwrap();
        let left = session(&mut tx).await;
        MySql::commit(tx).await.unwrap();
        assert_eq!(verdict(&fixture.another().await, &claim("order:1")).await, DUPLICATE);

        let claims = if group { vec![claim("order:2"), claim("order:3")] } else { vec![claim("order:2")] };
        let (mut tx, verdicts) = MySql::begin(inbox, &claims, crate::store::suite::LIMITS).await.unwrap();
        assert!(verdicts.iter().all(|verdict| *verdict == FRESH), "{verdicts:?}");
        assert_eq!(session(&mut tx).await, left, "it was replaced, not brought back");
        tx.execute("INSERT INTO stock VALUES (1)").await.expect("the next body is in the other database");
        effect::<MySql>(&mut tx, &claim("order:2")).await.unwrap();
        MySql::commit(tx).await.unwrap();
        assert_eq!((effects(inbox).await, effects(other.inbox()).await), (1, 0));
        assert_eq!(crate::store::suite::rows(other.inbox()).await, 0, "a claim went to the other database");
        assert_eq!(crate::store::suite::number(inbox, "SELECT COUNT(*) FROM {attempts}").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_not_strict_is_brought_back_after_a_rollback() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (inbox, other) = (fixture.inbox(), other(&fixture).await);
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    tx.execute(AssertSqlSafe(format!("SET sql_mode = ''; USE {}", other.name()))).await.unwrap();
    MySql::rollback(tx).await;
    let (mut tx, verdict) = begin(inbox, &claim("order:1")).await;
    assert_eq!(verdict, FRESH);
    tx.execute("INSERT INTO stock VALUES (1)").await.expect("the next body is in the other database");
    MySql::commit(tx).await.unwrap();
}
