//! What a body does to its transaction, and what the server does about it.

use sqlx::Executor as _;

use super::*;
use crate::error::{Class, Error};
use crate::store::CommitError;
use crate::store::suite::{DUPLICATE, FRESH, begin, claim, deliver, effect, effects, ready, rows, verdict};

fn refused(committed: Result<(), CommitError>) -> Error {
    match committed {
        Err(CommitError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_the_bodys_own_fails_and_says_what_to_do() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap();
    let error = tx.execute("COMMIT").await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "2D000");
    let text = refused(Postgres::commit(tx).await).to_string();
    assert!(text.contains("leave the transaction's end to the inbox"), "{text}");
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_after_a_bodys_own_rollback_are_refused() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("ROLLBACK").await.unwrap();
    let error = effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "25006");
    assert_eq!(Error::from(error).class(), Class::Failure, "it is the body's own doing");
    refused(Postgres::commit(tx).await);
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swallowed_error_is_refused() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap();
    tx.execute("SELECT 1 / 0").await.unwrap_err();
    assert_eq!(refused(Postgres::commit(tx).await).class(), Class::Failure);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_a_body_makes_are_part_of_the_transaction() {
    let fixture = ready::<PgDatabase>().await;
    for kept in [false, true] {
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        tx.execute("CREATE TABLE made (id INTEGER)").await.unwrap();
        if kept {
            Postgres::commit(tx).await.unwrap();
        } else {
            Postgres::rollback(tx).await;
        }
        let made = count(fixture.inbox(), "SELECT count(*) FROM pg_class WHERE relname = 'made'").await;
        assert_eq!((made, rows(fixture.inbox()).await), (i64::from(kept), i64::from(kept)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_constraint_that_fails_at_commit_keeps_nothing() {
    let fixture = ready::<PgDatabase>().await;
    ask(fixture.inbox(), "CREATE TABLE once (id INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    tx.execute("INSERT INTO once VALUES (1), (1)").await.unwrap();
    let error = refused(Postgres::commit(tx).await);
    assert_eq!(error.class(), Class::Failure);
    assert!(error.to_string().contains("duplicate key"), "{error}");
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_table_does_not_take_the_claims() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = Inbox::<Postgres>::options().max_connections(1).connect(&fixture.url()).await.unwrap();
    let (mut tx, _) = begin(&inbox, &claim("order:0")).await;
    let shadow = "CREATE TEMPORARY TABLE inbox (LIKE public.inbox INCLUDING ALL); \
                  CREATE TEMPORARY TABLE inbox_attempts (LIKE public.inbox_attempts INCLUDING ALL)";
    tx.execute(shadow).await.unwrap();
    Postgres::commit(tx).await.unwrap();
    // The one lane's session has the shadows now.
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
    let group = [claim("order:2"), claim("order:3")];
    let (tx, _) = Postgres::begin(&inbox, &group, crate::store::suite::LIMITS).await.unwrap();
    Postgres::commit(tx).await.unwrap();
    assert_eq!(count(fixture.inbox(), "SELECT count(*) FROM public.inbox").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_durable_whatever_the_body_or_the_database_has_set() {
    let fixture = ready::<PgDatabase>().await;
    ask(fixture.inbox(), "CREATE TABLE seen (setting TEXT, beside TEXT)").await;
    ask(
        fixture.inbox(),
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO seen VALUES (current_setting('synchronous_commit'), NEW.note); RETURN NULL; END $$",
    )
    .await;
    let look = "CREATE CONSTRAINT TRIGGER look AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED \
                FOR EACH ROW EXECUTE FUNCTION look()";
    ask(fixture.inbox(), look).await;
    for (number, set) in ["SELECT 1", "SET LOCAL synchronous_commit = off", "SET synchronous_commit = off", "SELECT 1"]
        .into_iter()
        .enumerate()
    {
        let claim = claim(&format!("order:{number}"));
        let (mut tx, _) = begin(fixture.inbox(), &claim).await;
        tx.execute(set).await.unwrap();
        effect::<Postgres>(&mut tx, &claim).await.unwrap();
        Postgres::commit(tx).await.unwrap();
    }
    assert_eq!(count(fixture.inbox(), "SELECT count(*) FROM seen WHERE setting = 'on'").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bookkeeping_is_durable_in_a_database_that_has_synchronous_commit_off() {
    let fixture = ready::<PgDatabase>().await;
    ask(fixture.inbox(), &format!("ALTER DATABASE {} SET synchronous_commit = off", fixture.name)).await;
    let inbox = fixture.another().await;
    let (mut tx, _) = Postgres::begin(&inbox, &[], crate::store::suite::LIMITS).await.unwrap();
    let shown = Postgres::run(&mut tx, "SHOW synchronous_commit", Vec::new()).await.unwrap();
    assert_eq!(shown[0].text(0).unwrap(), "on");
    Postgres::rollback(tx).await;
    assert_eq!(inbox.record_failure(&claim("order:1"), "no stock").await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_whose_columns_a_migration_changed_works_in_the_next_attempt() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = Inbox::<Postgres>::options().max_connections(1).connect(&fixture.url()).await.unwrap();
    let look = "SELECT * FROM effects";
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    sqlx::query(look).fetch_all(&mut *tx).await.unwrap();
    Postgres::commit(tx).await.unwrap();
    ask(fixture.inbox(), "ALTER TABLE effects ADD COLUMN more TEXT").await;
    let (mut tx, _) = begin(&inbox, &claim("order:2")).await;
    sqlx::query(look).fetch_all(&mut *tx).await.unwrap_err();
    Postgres::rollback(tx).await;
    let (mut tx, _) = begin(&inbox, &claim("order:2")).await;
    sqlx::query(look).fetch_all(&mut *tx).await.unwrap();
    Postgres::commit(tx).await.unwrap();
}
