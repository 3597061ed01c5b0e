//! Tables and settings that a start refuses.

use super::*;
use crate::store::suite::{Fixture as _, ready};
use crate::store::{Risk, SchemaError, StartError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p07_migrations_pass_under_four_byte_defaults() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let defaults = ask(fixture.inbox(), "SELECT @@character_set_database").await;
    assert_eq!(defaults[0].text(0).unwrap(), "utf8mb4");
    fixture.inbox().verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_changed_are_described() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let changes = [
        ("ALTER TABLE inbox MODIFY message_key VARCHAR(255) NOT NULL", "column message_key varchar(255)"),
        ("ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, message_key(20))", "message_key(20)"),
        ("CREATE TRIGGER spoils BEFORE INSERT ON inbox FOR EACH ROW SET NEW.payload = 0", "trigger spoils"),
        ("ALTER TABLE inbox_attempts ENGINE = MyISAM", "`inbox_attempts`: engine MyISAM"),
        ("ALTER TABLE inbox_dead_letters DROP KEY by_identity", "unique (consumer, identity)"),
        ("ALTER TABLE inbox_dead_letters MODIFY body BLOB NOT NULL", "column body blob"),
    ];
    for (change, told) in changes {
        let fixture = ready::<fixture::MySqlDatabase>().await;
        fixture.execute(change).await;
        let Err(SchemaError::Different(differences)) = fixture.inbox().verify().await else { panic!("{change}") };
        assert!(differences.iter().any(|difference| difference.contains(told)), "{change}: {differences:?}");
    }
    fixture.inbox().verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_index_is_the_users_own_affair() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    fixture.execute("CREATE INDEX mine ON inbox (received_at)").await;
    fixture.inbox().verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_engine_refuses_the_start() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    fixture.execute("ALTER TABLE inbox ENGINE = MyISAM").await;
    let Err(StartError::Risks(risks)) = fixture.inbox().check_risks().await else { panic!("it wasn't refused") };
    assert!(risks.contains(&Risk::NotInnoDb), "{risks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_flushes_later_refuses_the_start_unless_allowed() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    fixture.inbox().check_risks().await.unwrap();
    // A setting of the whole server: no other test looks at it.
    fixture.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await;
    let refused = fixture.inbox().check_risks().await;
    let allowing = Inbox::<MySql>::options().allow(Risk::FlushLogNotAtCommit).connect(&fixture.url()).await.unwrap();
    let allowed = allowing.check_risks().await;
    fixture.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("innodb_flush_log_at_trx_commit"), "{refused}");
    allowed.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_stopped_halfway_is_finished_by_the_next() {
    let fixture = fixture::MySqlDatabase::bare().await;
    let first = fixture.inbox().sql(<MySql as crate::store::Store>::MIGRATIONS[0][0]);
    fixture.execute(&first).await;
    fixture.inbox().migrate().await.unwrap();
    fixture.inbox().verify().await.unwrap();
}
