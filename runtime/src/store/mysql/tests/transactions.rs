//! What a body can do to its transaction on MySQL.

use sqlx::{Connection as _, Executor as _, MySqlConnection};

use super::super::code;
use super::*;
use crate::error::{Class, Error};
use crate::store::CommitError;
use crate::store::suite::{DUPLICATE, Fixture as _, begin, claim, effect, effects, ready, rows, verdict};

fn number(error: &sqlx::Error) -> u16 {
    code::number(error).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m08_ddl_in_a_body_is_refused_and_commits_nothing() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = fixture.inbox();
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    for ddl in ["CREATE TABLE other (id INT)", "TRUNCATE effects", "ALTER TABLE effects ADD COLUMN more INT"] {
        let refused = tx.execute(ddl).await.unwrap_err();
        assert_eq!((number(&refused), Error::from(refused).class()), (code::XA_STATE, Class::Failure), "{ddl}");
    }
    MySql::rollback(tx).await;
    assert_eq!((effects(inbox).await, rows(inbox).await), (0, 0));

    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    MySql::rollback(tx).await;
    assert_eq!((effects(inbox).await, rows(inbox).await), (0, 0), "the next message had no true transaction");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_rollback_and_begin_in_a_body_are_refused() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = fixture.inbox();
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    for end in ["COMMIT", "ROLLBACK", "BEGIN", "START TRANSACTION", "COMMIT; BEGIN", "ROLLBACK; BEGIN"] {
        assert_eq!(number(&tx.execute(end).await.unwrap_err()), code::XA_STATE, "{end}");
    }
    assert_eq!((effects(inbox).await, rows(inbox).await), (0, 0), "something was committed early");
    MySql::commit(tx).await.unwrap();
    assert_eq!((effects(inbox).await, rows(inbox).await), (1, 1));
}

/// A body that loses a deadlock: it has written an effect, holds one row of `stock` and waits for the other.
async fn deadlocked(
    fixture: &fixture::MySqlDatabase,
    inbox: &Inbox<MySql>,
) -> (<MySql as crate::store::Store>::Tx, sqlx::Error) {
    fixture.execute("CREATE TABLE stock (id INT PRIMARY KEY, n INT); INSERT INTO stock VALUES (1, 0), (2, 0)").await;
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    tx.execute("UPDATE stock SET n = n + 1 WHERE id = 1").await.unwrap();
    let url = fixture.url();
    let other = tokio::spawn(async move {
        let mut other = MySqlConnection::connect(&url).await.unwrap();
        // The server gives up the transaction that has written less.
        let weight = vec!["('x', 'weight')"; 200].join(", ");
        let weight = format!("BEGIN; INSERT INTO effects VALUES {weight}; UPDATE stock SET n = n + 1 WHERE id = 2");
        other.execute(sqlx::AssertSqlSafe(weight)).await.unwrap();
        other.execute("UPDATE stock SET n = n + 1 WHERE id = 1").await.unwrap();
        other.execute("ROLLBACK").await.unwrap();
    });
    let waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' \
                 AND trx_query = 'UPDATE stock SET n = n + 1 WHERE id = 1'";
    let look = async || {
        // The server renews that table only if nobody has read it for a tenth of a second.
        tokio::time::sleep(Duration::from_millis(150)).await;
        fixture.number(waits).await
    };
    crate::store::suite::eventually("the other waits", look, |waiting| *waiting > 0).await;
    let lost = tx.execute("UPDATE stock SET n = n + 1 WHERE id = 2").await.unwrap_err();
    other.await.unwrap();
    (tx, lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swallowed_deadlock_commits_nothing() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let (mut tx, lost) = deadlocked(&fixture, fixture.inbox()).await;
    assert_eq!(number(&lost), 1213);
    // The rest of the body would be committed statement by statement if the database let it.
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap_err();
    let Err(CommitError::Refused(error)) = MySql::commit(tx).await else { panic!("went unnoticed") };
    assert_eq!(error.class(), Class::Contention);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_contention_and_its_connection_serves_again() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = Inbox::new(fixture.pool(1).await);
    let (mut tx, lost) = deadlocked(&fixture, &inbox).await;
    assert_eq!(Error::from(lost).class(), Class::Contention);
    let session = session(&mut tx).await;
    MySql::rollback(tx).await;
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    assert_eq!(self::session(&mut tx).await, session, "it was replaced, not kept");
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    MySql::commit(tx).await.unwrap();
    assert_eq!(effects(fixture.inbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m07_a_body_never_meets_a_lock_timeout() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    fixture.execute("CREATE TABLE stock (id INT PRIMARY KEY, n INT); INSERT INTO stock VALUES (1, 0)").await;
    let hasty = sqlx::mysql::MySqlPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET innodb_lock_wait_timeout = 1").await.map(drop) })
    });
    let inbox = Inbox::new(hasty.connect(&fixture.url()).await.unwrap());
    let mut other = MySqlConnection::connect(&fixture.url()).await.unwrap();
    other.execute("BEGIN; UPDATE stock SET n = n + 1 WHERE id = 1").await.unwrap();
    let holder = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        other.execute("COMMIT").await.unwrap();
    });
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    tx.execute("UPDATE stock SET n = n + 1 WHERE id = 1").await.expect("1205 after a second, as the session had it");
    MySql::commit(tx).await.unwrap();
    holder.await.unwrap();
    assert_eq!(verdict(&inbox, &claim("order:1")).await, DUPLICATE);
    assert_eq!(ask(&inbox, "SELECT @@innodb_lock_wait_timeout").await[0].int(0).unwrap(), 1, "the pool's was changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_a_body_left_without_autocommit_serves_the_next() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = Inbox::new(fixture.pool(1).await);
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    tx.execute("SET autocommit = 0").await.unwrap();
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    MySql::commit(tx).await.unwrap();
    assert_eq!(effects(&inbox).await, 1);
    crate::store::suite::deliver(&inbox, &claim("order:2")).await.unwrap();
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (2, 2));
}
