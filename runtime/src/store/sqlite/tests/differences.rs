//! `verify` names what differs, `check_risks` what may be forgotten, `connect` what the URL says.

use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};

use super::SqliteFile;
use crate::store::suite::{Fixture, execute, ready};
use crate::store::{Inbox, Risk, SchemaError, StartError};

/// What `verify` says after somebody has run these statements.
async fn differences_after(statements: &[&str]) -> String {
    let fixture = ready::<SqliteFile>().await;
    for statement in statements {
        execute(fixture.inbox(), statement, vec![]).await;
    }
    let refused = fixture.inbox().verify().await.unwrap_err();
    assert!(matches!(refused, SchemaError::Different(_)), "{refused}");
    refused.to_string()
}

#[tokio::test]
async fn a_missing_column_is_named() {
    let text = differences_after(&["ALTER TABLE {dead_letters} DROP COLUMN sent_at"]).await;
    assert!(text.contains("missing: `inbox_dead_letters`: column sent_at INTEGER"), "{text}");
}

#[tokio::test]
async fn a_column_too_many_is_named() {
    let text = differences_after(&["ALTER TABLE {inbox} ADD COLUMN tenant TEXT"]).await;
    assert!(text.contains("not ours: `inbox`: column tenant TEXT"), "{text}");
}

#[tokio::test]
async fn a_trigger_is_named() {
    let trigger = "CREATE TRIGGER tidy AFTER INSERT ON {inbox} BEGIN DELETE FROM inbox; END";
    let text = differences_after(&[trigger]).await;
    assert!(text.contains("not ours: `inbox`: trigger tidy"), "{text}");
}

#[tokio::test]
async fn another_collation_is_named() {
    let table = "CREATE TABLE {inbox} (consumer INTEGER NOT NULL, message_key TEXT NOT NULL COLLATE NOCASE, \
                 received_at INTEGER NOT NULL, payload INTEGER NOT NULL, PRIMARY KEY (consumer, message_key)) \
                 STRICT, WITHOUT ROWID";
    let text = differences_after(&["DROP TABLE {inbox}", table]).await;
    assert!(text.contains("missing: `inbox`: unique (consumer BINARY, message_key BINARY)"), "{text}");
    assert!(text.contains("not ours: `inbox`: unique (consumer BINARY, message_key NOCASE)"), "{text}");
}

#[tokio::test]
async fn a_missing_key_and_a_loose_table_are_named() {
    let table = "CREATE TABLE {inbox} (consumer INTEGER NOT NULL, message_key TEXT NOT NULL, \
                 received_at INTEGER NOT NULL, payload INTEGER NOT NULL)";
    let text = differences_after(&["DROP TABLE {inbox}", table]).await;
    assert!(text.contains("missing: `inbox`: unique"), "{text}");
    assert!(text.contains("missing: `inbox`: a table, STRICT true, WITHOUT ROWID true"), "{text}");
}

#[tokio::test]
async fn a_unique_index_that_would_refuse_messages_is_named() {
    let text = differences_after(&["CREATE UNIQUE INDEX one_payload ON {prefix} (payload)"]).await;
    assert!(text.contains("not ours: `inbox`: unique (payload BINARY)"), "{text}");
}

#[tokio::test]
async fn an_index_of_the_users_own_is_no_difference() {
    let fixture = ready::<SqliteFile>().await;
    execute(fixture.inbox(), "CREATE INDEX by_age ON {prefix} (received_at)", vec![]).await;
    fixture.inbox().verify().await.unwrap();
}

#[tokio::test]
async fn a_table_that_was_dropped_is_named() {
    let text = differences_after(&["DROP TABLE {attempts}"]).await;
    assert!(text.contains("missing: `inbox_attempts`: a table"), "{text}");
}

#[tokio::test]
async fn a_foreign_scheme_is_refused_before_anything_is_opened() {
    for url in ["postgres://shop:secret@localhost/shop", "shop.db", "mysql://localhost/shop", ""] {
        let refused = Inbox::<Sqlite>::connect(url).await.unwrap_err();
        assert!(matches!(refused, StartError::Scheme { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("this is an `Inbox<Sqlite>`") && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn a_missing_file_is_created_but_no_missing_folder() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}/{name}", folder.path().display());
    Inbox::<Sqlite>::connect(&url("new.db")).await.unwrap().migrate().await.unwrap();
    assert!(folder.path().join("new.db").exists());
    let refused = Inbox::<Sqlite>::connect(&url("none/new.db")).await.unwrap_err();
    assert!(matches!(refused, StartError::Connect(_)), "{refused}");
    let refused = Inbox::<Sqlite>::connect(&url("other.db?mode=rw")).await.unwrap_err();
    assert!(matches!(refused, StartError::Connect(_)), "{refused}");
}

#[tokio::test]
async fn our_own_pool_is_durable() {
    let fixture = ready::<SqliteFile>().await;
    fixture.inbox().check_risks().await.unwrap();
    let mode = fixture.inbox().read("PRAGMA journal_mode", vec![]).await.unwrap();
    assert_eq!(mode[0].text(0).unwrap(), "wal");
}

#[tokio::test]
async fn synchronous_below_full_is_refused_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("shop.db"))
        .create_if_missing(true)
        .synchronous(SqliteSynchronous::Normal);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let refused = Inbox::new(pool.clone()).check_risks().await.unwrap_err();
    assert!(matches!(&refused, StartError::Risks(risks) if *risks == [Risk::SynchronousBelowFull]), "{refused}");
    assert!(refused.to_string().contains("Risk::SynchronousBelowFull"), "{refused}");
    let allowed = Inbox::options().allow(Risk::SynchronousBelowFull).with_pool(pool).unwrap();
    allowed.check_risks().await.unwrap();
}

#[tokio::test]
async fn a_database_in_memory_is_refused_unless_allowed() {
    let refused = Inbox::<Sqlite>::connect("sqlite::memory:").await.unwrap().check_risks().await.unwrap_err();
    assert!(matches!(&refused, StartError::Risks(risks) if *risks == [Risk::InMemory]), "{refused}");
    let allowed = Inbox::<Sqlite>::options().allow(Risk::InMemory).connect("sqlite::memory:").await.unwrap();
    allowed.check_risks().await.unwrap();
    allowed.migrate().await.unwrap();
    allowed.verify().await.unwrap();
}
