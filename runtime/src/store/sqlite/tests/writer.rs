//! SQLite's one write lock: who gets it, for how long, and what a body can't do while it holds it.

use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Connection as _, Executor as _, Sqlite, SqliteConnection};

use super::SqliteFile;
use crate::error::Class;
use crate::store::suite::{
    DUPLICATE, FRESH, Fixture, LIMITS, SHORT, begin, claim, deliver, effect, effects, ready, rows, verdict,
};
use crate::store::{CommitError, Inbox, Limits, Store as _};

#[tokio::test]
async fn a_bodys_commit_is_refused_by_the_database() {
    let fixture = ready::<SqliteFile>().await;
    for statement in ["COMMIT", "END", "COMMIT; BEGIN"] {
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap();
        tx.execute(sqlx::AssertSqlSafe(statement)).await.unwrap_err();
        effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap_err();
        assert!(matches!(Sqlite::commit(tx).await, Err(CommitError::Refused(_))), "{statement}");
        assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0), "{statement}");
    }
}

#[tokio::test]
async fn a_transaction_that_a_body_began_itself_cannot_be_committed() {
    let fixture = ready::<SqliteFile>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("ROLLBACK").await.unwrap();
    tx.execute("BEGIN").await.unwrap();
    effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap();
    tx.execute("COMMIT").await.unwrap_err();
    Sqlite::commit(tx).await.unwrap_err();
    assert_eq!(effects(fixture.inbox()).await, 0);
}

#[tokio::test]
async fn a_refused_commit_says_what_the_body_did() {
    let fixture = ready::<SqliteFile>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("ROLLBACK").await.unwrap();
    let Err(CommitError::Refused(error)) = Sqlite::commit(tx).await else { panic!("the commit went through") };
    assert_eq!(error.class(), Class::Failure);
    assert!(error.to_string().contains("the body ended it by COMMIT or ROLLBACK"), "{error}");
}

#[tokio::test]
async fn ddl_in_a_body_is_part_of_its_transaction() {
    let fixture = ready::<SqliteFile>().await;
    for kept in [false, true] {
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        tx.execute("CREATE TABLE made (number INTEGER)").await.unwrap();
        if kept {
            Sqlite::commit(tx).await.unwrap();
        } else {
            Sqlite::rollback(tx).await;
        }
        let made =
            fixture.inbox().read("SELECT COUNT(*) FROM sqlite_master WHERE name = 'made'", vec![]).await.unwrap();
        assert_eq!(made[0].int(0).unwrap(), i64::from(kept));
    }
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().unwrap().code().unwrap().into_owned()
}

const ENDLESS: &str =
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT COUNT(*) FROM numbers";

#[tokio::test]
async fn a_statement_beyond_the_deadline_is_ended_by_the_database() {
    let fixture = ready::<SqliteFile>().await;
    let limits = Limits { run: Duration::from_millis(50), ..LIMITS };
    let (mut tx, _) = Sqlite::begin(fixture.inbox(), &[claim("order:1")], limits).await.unwrap();
    effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap();
    let ended = tx.execute(ENDLESS).await.unwrap_err();
    assert_eq!(code(&ended), "9");
    Sqlite::close(tx).await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_dropped_within_a_statement_frees_the_claim() {
    let fixture = ready::<SqliteFile>().await;
    let inbox = fixture.inbox().clone();
    let (holds, held) = tokio::sync::oneshot::channel();
    let body = tokio::spawn(async move {
        let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
        holds.send(()).unwrap();
        let _ = tx.execute(ENDLESS).await;
    });
    held.await.unwrap();
    body.abort();
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for_and_then_unavailable() {
    let fixture = ready::<SqliteFile>().await;
    let mut foreign = SqliteConnection::connect(&fixture.url()).await.unwrap();
    foreign.execute("BEGIN IMMEDIATE").await.unwrap();
    let started = Instant::now();
    let refused = Sqlite::begin(fixture.inbox(), &[claim("order:1")], SHORT).await.unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable);
    assert!(refused.to_string().contains("another process holds the write lock"), "{refused}");
    assert!(started.elapsed() >= SHORT.claim);
    let inbox = fixture.inbox().clone();
    let waiting = tokio::spawn(async move { deliver(&inbox, &claim("order:1")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    foreign.execute("COMMIT").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), FRESH);
}

#[tokio::test]
async fn writers_of_one_file_are_served_in_their_order() {
    let fixture = ready::<SqliteFile>().await;
    let another = fixture.another().await;
    let (tx, _) = begin(fixture.inbox(), &claim("first")).await;
    let mut waiting = Vec::new();
    for number in 0..10 {
        let inbox = if number % 2 == 0 { fixture.inbox().clone() } else { another.clone() };
        waiting.push(tokio::spawn(async move { deliver(&inbox, &claim(&format!("order:{number}"))).await }));
        tokio::task::yield_now().await;
    }
    Sqlite::commit(tx).await.unwrap();
    for writer in waiting {
        writer.await.unwrap().unwrap();
    }
    let order = fixture.inbox().read("SELECT effect_key FROM effects ORDER BY rowid", vec![]).await.unwrap();
    let order = order.iter().map(|row| row.text(0).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(order, (0..10).map(|number| format!("order:{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_pool_is_unavailable_and_holds_nobody_up_for_longer_than_the_claim_may_wait() {
    let fixture = ready::<SqliteFile>().await;
    let inbox = Inbox::<Sqlite>::options().max_connections(1).connect(&fixture.url()).await.unwrap();
    let only = inbox.pool().acquire().await.unwrap();
    let refused = Sqlite::begin(&inbox, &[claim("order:1")], SHORT).await.unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable);
    drop(only);
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_users_connection_comes_back_as_it_was() {
    for (journal, connections) in [
        (SqliteJournalMode::Delete, 1),
        (SqliteJournalMode::Delete, 2),
        (SqliteJournalMode::Wal, 1),
        (SqliteJournalMode::Wal, 2),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("shop.db"))
            .create_if_missing(true)
            .journal_mode(journal)
            .busy_timeout(Duration::from_millis(1_234));
        let pool = SqlitePoolOptions::new().max_connections(connections).connect_with(options).await.unwrap();
        let inbox = Inbox::new(pool.clone());
        inbox.migrate().await.unwrap();
        pool.execute("CREATE TABLE effects (effect_key TEXT, note TEXT)").await.unwrap();
        deliver(&inbox, &claim("order:1")).await.unwrap();
        let (tx, _) = begin(&inbox, &claim("order:2")).await;
        Sqlite::rollback(tx).await;
        let timeout = inbox.read("PRAGMA busy_timeout", vec![]).await.unwrap();
        assert_eq!(timeout[0].int(0).unwrap(), 1_234);
        // The user's own commit and a long statement go through.
        let mut own = pool.begin().await.unwrap();
        own.execute("INSERT INTO effects VALUES ('own', 'own')").await.unwrap();
        own.commit().await.unwrap();
        assert_eq!(effects(&inbox).await, 2);
    }
}

#[tokio::test]
async fn a_deferred_constraint_at_the_commit_is_the_bodys_failure() {
    let fixture = ready::<SqliteFile>().await;
    let pool = fixture.inbox().pool();
    pool.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)").await.unwrap();
    let child = "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
    pool.execute(child).await.unwrap();
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("INSERT INTO child VALUES (1)").await.unwrap();
    let Err(CommitError::Refused(error)) = Sqlite::commit(tx).await else { panic!("the commit went through") };
    assert_eq!(error.class(), Class::Failure);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
}

#[tokio::test]
async fn two_writers_of_a_deferred_transaction_are_contention_not_a_failure() {
    let fixture = ready::<SqliteFile>().await;
    let mut stale = SqliteConnection::connect(&fixture.url()).await.unwrap();
    stale.execute("PRAGMA busy_timeout = 0").await.unwrap();
    stale.execute("BEGIN").await.unwrap();
    sqlx::query("SELECT * FROM effects").fetch_all(&mut stale).await.unwrap();
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    let snapshot = stale.execute("INSERT INTO effects VALUES ('x', 'x')").await.unwrap_err();
    assert_eq!(code(&snapshot), "517");
    assert_eq!(crate::error::Error::from(snapshot).class(), Class::Contention);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_unavailable() {
    let fixture = ready::<SqliteFile>().await;
    let inbox = Inbox::<Sqlite>::connect(&format!("{}?mode=ro", fixture.url())).await.unwrap();
    let refused = Sqlite::begin(&inbox, &[claim("order:1")], LIMITS).await.unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_fifty_messages_a_second_go_through_while_many_rows_are_pruned() {
    crate::store::suite::pruning::fifty_messages_a_second_go_through_while_many_rows_are_pruned::<SqliteFile>().await;
}
