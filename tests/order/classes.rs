//! How a failure is answered follows from its class, and the class from what is inside the error.

use std::error::Error as StdError;
use std::time::Duration;

use inboxed::store::Reason;
use inboxed::{Class, Error, Outcome, Permanent, RetryPolicy, idempotent, permanent};
use sqlx::{Connection as _, SqliteConnection};

use super::support::{Order, Script, Shop, deliver, deliver_to_the_end, effect};

/// An error of SQLite itself: what the second writer is told while the first one holds the lock.
async fn busy() -> sqlx::Error {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", folder.path().join("busy.db").display());
    let mut holder = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("CREATE TABLE held (id INTEGER PRIMARY KEY); BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    let refused = sqlx::raw_sql("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE").execute(&mut other).await;
    refused.unwrap_err()
}

/// An error that is the statement's own fault.
async fn constraint() -> sqlx::Error {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let twice =
        "CREATE TABLE taken (id INTEGER PRIMARY KEY); INSERT INTO taken VALUES (1); INSERT INTO taken VALUES (1)";
    sqlx::raw_sql(twice).execute(&mut connection).await.unwrap_err()
}

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error("the stock can't be read")]
    Database(#[source] sqlx::Error),
    #[error("reserved for somebody else")]
    Reserved(#[source] Box<StockError>),
    #[error("no such product")]
    Unknown(#[from] Permanent),
}

#[tokio::test]
async fn database_error_is_found_inside_every_kind_of_error() {
    let nested = StockError::Reserved(Box::new(StockError::Database(busy().await)));
    let boxed: Box<dyn StdError + Send + Sync> = Box::new(StockError::Database(busy().await));
    let in_anyhow =
        anyhow::Error::new(StockError::Database(busy().await)).context("while packing").context("and again");
    for (kind, error) in [
        ("sqlx", Error::from(busy().await)),
        ("thiserror", Error::from(StockError::Database(busy().await))),
        ("nested", Error::from(nested)),
        ("boxed", Error::from(boxed)),
        ("anyhow", Error::from(anyhow::Error::from(busy().await))),
        ("anyhow with contexts", Error::from(in_anyhow)),
    ] {
        assert_eq!(error.class(), Class::Contention, "{kind}: {error:?}");
    }
}

#[tokio::test]
async fn class_of_a_database_error_is_by_its_code() {
    for (error, class) in [
        (constraint().await, Class::Failure),
        (sqlx::Error::RowNotFound, Class::Failure),
        (sqlx::Error::PoolTimedOut, Class::Unavailable),
        (sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()), Class::Unavailable),
    ] {
        let text = error.to_string();
        assert_eq!(Error::from(error).class(), class, "{text}");
    }
}

#[test]
fn texts_are_failures_even_if_they_sound_like_the_databases() {
    let boxed: Box<dyn StdError + Send + Sync> = "database is locked".into();
    for error in [
        Error::from("database is locked"),
        Error::from("database is locked".to_owned()),
        Error::from(boxed),
        Error::from(anyhow::anyhow!("deadlock detected")),
    ] {
        assert_eq!(error.class(), Class::Failure, "{error:?}");
    }
}

#[test]
fn permanent_is_found_inside_every_kind_of_error() {
    let unknown = || StockError::Unknown(Permanent::new("no product 7"));
    let boxed: Box<dyn StdError + Send + Sync> = Box::new(unknown());
    for error in [
        permanent("no product 7"),
        Error::from(Permanent::new("no product 7")),
        Error::from(unknown()),
        Error::from(StockError::Reserved(Box::new(unknown()))),
        Error::from(boxed),
        Error::from(anyhow::Error::new(unknown()).context("while packing")),
    ] {
        assert_eq!(error.class(), Class::Permanent, "{error:?}");
        assert!(error.chain().contains("no product 7"), "{}", error.chain());
    }
}

#[tokio::test]
async fn contention_is_run_again_at_once_and_uncounted() {
    let shop = Shop::open().await;
    let met = std::sync::Mutex::new(Some((busy().await, busy().await)));
    let script = Script::new(move |run| {
        let mut met = met.lock().unwrap();
        match (run, met.take()) {
            (1, Some((first, second))) => {
                *met = Some((second, sqlx::Error::RowNotFound));
                Err(first.into())
            }
            (2, Some((second, _))) => Err(anyhow::Error::from(second).into()),
            _ => Ok(()),
        }
    });
    // One delivery is enough, and it is still the first attempt.
    assert_eq!(deliver(&shop.scripted(&script), 7).await, Outcome::Done);
    assert_eq!((script.runs(), shop.effects().await, shop.failures().await), (3, 1, 0));
    assert_eq!(shop.number("SELECT attempt FROM attempts").await, 1);
}

#[tokio::test]
async fn contention_without_end_is_given_back_uncounted() {
    let shop = Shop::open().await;
    let mut errors = Vec::new();
    for _ in 0..20 {
        errors.push(busy().await);
    }
    let errors = std::sync::Mutex::new(errors);
    let script = Script::new(move |_| Err(errors.lock().unwrap().pop().unwrap().into()));
    let consumer = shop.scripted(&script).retry(RetryPolicy::default().attempts(1));
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert!((2..=10).contains(&script.runs()), "a few times: {}", script.runs());
    assert_eq!((shop.effects().await, shop.failures().await, shop.letters().await.len()), (0, 0, 0));
}

#[tokio::test]
async fn unavailable_is_given_back_with_a_delay_and_uncounted() {
    let shop = Shop::open().await;
    let script = Script::new(|run| if run <= 5 { Err(sqlx::Error::PoolTimedOut.into()) } else { Ok(()) });
    let policy = RetryPolicy::default().attempts(2).backoff(Duration::from_millis(4), Duration::from_millis(8));
    let consumer = shop.scripted(&script).retry(policy);
    let Outcome::Retry(delay) = deliver(&consumer, 7).await else { panic!("given back") };
    assert!(delay >= Duration::from_millis(2), "{delay:?}");
    assert_eq!((script.runs(), shop.effects().await, shop.failures().await), (1, 0, 0));
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::Done);
    assert_eq!((script.runs(), shop.effects().await), (6, 1));
    assert_eq!(shop.number("SELECT attempt FROM attempts").await, 1);
}

#[tokio::test]
async fn permanent_is_dead_lettered_at_once() {
    let shop = Shop::open().await;
    let script = Script::new(|_| Err(permanent("unknown currency")));
    assert_eq!(deliver(&shop.scripted(&script), 7).await, Outcome::DeadLettered);
    let letter = shop.letter().await;
    assert_eq!((script.runs(), letter.reason, letter.attempts), (1, Reason::Permanent, 1));
    assert_eq!(letter.error, "unknown currency");
    assert_eq!((shop.effects().await, shop.claims().await), (0, 0));
}

/// Writes more than the file may hold.
#[idempotent(key = "order:{id}")]
async fn fills_the_disk(order: Order, tx: &mut SqliteConnection) -> Result<(), StockError> {
    let full = "PRAGMA max_page_count = 1; CREATE TABLE pallets AS SELECT zeroblob(4000000)";
    sqlx::raw_sql(full).execute(&mut *tx).await.map_err(StockError::Database)?;
    effect(tx, order.id).await.map_err(StockError::Database)
}

#[tokio::test]
async fn full_disk_is_nobodys_failure() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().retry(RetryPolicy::default().attempts(1)).handle("orders", fills_the_disk);
    assert!(matches!(deliver(&consumer, 7).await, Outcome::Retry(_)));
    assert_eq!((shop.effects().await, shop.failures().await, shop.letters().await.len()), (0, 0, 0));
}
