//! The sessions that transactions run in, the user's pool beside them, and a server that goes away.

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, Executor as _};

use super::*;
use crate::error::{Class, Error};
use crate::store::suite::{DUPLICATE, FRESH, begin, claim, deliver, effect, effects, ready, verdict};

async fn pool_of(fixture: &PgDatabase, connections: u32) -> sqlx::PgPool {
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(20));
    pool.connect_with(fixture.options()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_pool_keeps_its_sessions_as_they_were() {
    let fixture = ready::<PgDatabase>().await;
    let pool = pool_of(&fixture, 1).await;
    let inbox = Inbox::new(pool.clone());
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), DUPLICATE);
    inbox.record_failure(&claim("order:2"), "no stock").await.unwrap();
    let own = "SELECT name || ' = ' || setting FROM pg_settings WHERE source = 'session' OR name LIKE 'inboxed.%'";
    assert_eq!(ask(&inbox, own).await, [], "the session has settings of ours");
    assert_eq!(count(&inbox, "SELECT count(*) FROM pg_prepared_statements").await, 0);

    let mut connection = pool.acquire().await.unwrap();
    let mut users = connection.begin().await.unwrap();
    users.execute("INSERT INTO effects VALUES ('mine', 'undone')").await.unwrap();
    users.rollback().await.unwrap();
    drop(connection);
    assert_eq!(effects(&inbox).await, 1, "the user's own transaction was none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_runs_in_a_session_that_after_connect_has_seen() {
    let fixture = ready::<PgDatabase>().await;
    let pool = PgPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET app.tenant = 'north'").await.map(drop) })
    });
    let inbox = Inbox::new(pool.connect_with(fixture.options()).await.unwrap());
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    let shown = Postgres::run(&mut tx, "SHOW app.tenant", Vec::new()).await.unwrap();
    assert_eq!(shown[0].text(0).unwrap(), "north");
    Postgres::rollback(tx).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_body_that_asks_the_pool_for_a_second_connection_gets_one() {
    let fixture = ready::<PgDatabase>().await;
    let pool = pool_of(&fixture, 1).await;
    let inbox = Inbox::new(pool.clone());
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    let second = pool.acquire().await.unwrap();
    effect::<Postgres>(&mut tx, &claim("order:1")).await.unwrap();
    Postgres::commit(tx).await.unwrap();
    drop(second);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_claim_without_a_free_connection_is_given_back() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = Inbox::new(pool_of(&fixture, 1).await);
    let (tx, _) = begin(&inbox, &claim("order:1")).await;
    let refused = Postgres::begin(&inbox, &[claim("order:2")], HASTY).await.map(drop).unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable);
    Postgres::rollback(tx).await;
    assert_eq!(deliver(&inbox, &claim("order:2")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_the_server_ended_are_replaced_unnoticed() {
    let fixture = ready::<PgDatabase>().await;
    let (first, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let (second, _) = begin(fixture.inbox(), &claim("order:2")).await;
    Postgres::rollback(first).await;
    Postgres::rollback(second).await;
    let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut server = PgConnection::connect_with(&fixture.options()).await.unwrap();
    server.execute(end).await.unwrap();
    for key in ["order:1", "order:2"] {
        assert_eq!(deliver(fixture.inbox(), &claim(key)).await.unwrap(), FRESH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_throws_prepared_statements_away_harms_no_later_message() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = Inbox::<Postgres>::options().max_connections(1).connect(&fixture.url()).await.unwrap();
    for number in 0..3 {
        let claim = claim(&format!("order:{number}"));
        let (mut tx, verdict) = begin(&inbox, &claim).await;
        assert_eq!(verdict, FRESH);
        tx.execute("DEALLOCATE ALL").await.unwrap();
        Postgres::commit(tx).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ended_under_a_body_is_no_failure_of_the_body() {
    let fixture = ready::<PgDatabase>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let ended = tx.execute("SELECT pg_terminate_backend(pg_backend_pid())").await.unwrap_err();
    assert_eq!(Error::from(ended).class(), Class::Unavailable);
    let committed = Postgres::commit(tx).await;
    assert!(committed.is_err());
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_pool_ends_the_inbox_and_is_not_waited_for() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = fixture.another().await;
    deliver(&inbox, &claim("order:1")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), inbox.pool().close()).await.expect("a lane was waited for");
    let (tx, _) = begin(fixture.inbox(), &claim("order:2")).await;
    Postgres::rollback(tx).await;
}

#[test]
fn an_inbox_may_be_dropped_outside_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fixture, inbox) = runtime.block_on(async {
        let fixture = ready::<PgDatabase>().await;
        let inbox = fixture.another().await;
        deliver(&inbox, &claim("order:1")).await.unwrap();
        (fixture, inbox)
    });
    drop(runtime);
    drop((inbox, fixture));
}
