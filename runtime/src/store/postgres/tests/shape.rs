//! Tables and settings that a start refuses.

use super::*;
use crate::store::suite::{FRESH, Fixture as _, claim, deliver, ready};
use crate::store::{Risk, SchemaError, StartError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_changed_are_described() {
    let changes = [
        (
            "ALTER TABLE inbox ALTER COLUMN message_key TYPE varchar(255) COLLATE \"C\"",
            "column message_key character varying(255)",
        ),
        ("ALTER TABLE inbox ALTER COLUMN message_key TYPE text COLLATE \"default\"", "COLLATE default"),
        ("ALTER TABLE inbox DROP CONSTRAINT inbox_pkey", "missing: \"public\".inbox: unique (consumer, message_key)"),
        ("CREATE UNIQUE INDEX mine ON inbox (message_key)", "not ours: \"public\".inbox: unique (message_key)"),
        ("DROP TRIGGER inbox_guard ON inbox", "missing: \"public\".inbox: trigger inbox_guard"),
        ("ALTER TABLE inbox DISABLE TRIGGER inbox_guard", "conditional or disabled"),
        (
            "CREATE OR REPLACE FUNCTION inbox_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "calling another function",
        ),
        ("CREATE TRIGGER spoils BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION inbox_guard()", "trigger spoils"),
        ("ALTER TABLE inbox ENABLE ROW LEVEL SECURITY", "row level security"),
        ("ALTER TABLE inbox_attempts ALTER COLUMN failures DROP NOT NULL", "column failures bigint"),
        ("ALTER TABLE inbox_dead_letters ADD COLUMN mine TEXT", "column mine text"),
    ];
    for (change, told) in changes {
        let fixture = ready::<PgDatabase>().await;
        ask(fixture.inbox(), change).await;
        let Err(SchemaError::Different(differences)) = fixture.inbox().verify().await else { panic!("{change}") };
        assert!(differences.iter().any(|difference| difference.contains(told)), "{change}: {differences:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_index_is_the_users_own_affair() {
    let fixture = ready::<PgDatabase>().await;
    ask(fixture.inbox(), "CREATE INDEX mine ON inbox (received_at)").await;
    fixture.inbox().verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlogged_table_refuses_the_start_unless_allowed() {
    let fixture = ready::<PgDatabase>().await;
    fixture.inbox().check_risks().await.unwrap();
    ask(fixture.inbox(), "ALTER TABLE inbox SET UNLOGGED").await;
    let Err(StartError::Risks(risks)) = fixture.inbox().check_risks().await else { panic!("it wasn't refused") };
    assert_eq!(risks, [Risk::Unlogged]);
    let allowing = Inbox::<Postgres>::options().allow(Risk::Unlogged).connect(&fixture.url()).await.unwrap();
    allowing.check_risks().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_lives_in_the_schema_that_the_user_names() {
    let fixture = PgDatabase::bare().await;
    ask(fixture.inbox(), "CREATE SCHEMA shop").await;
    ask(fixture.inbox(), "CREATE TABLE effects (effect_key TEXT NOT NULL, note TEXT NOT NULL)").await;
    let options = || Inbox::<Postgres>::options().schema("shop").prefix("orders_inbox");
    let inbox = options().connect(&fixture.url()).await.unwrap();
    inbox.migrate().await.unwrap();
    inbox.verify().await.unwrap();
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(count(fixture.inbox(), "SELECT count(*) FROM shop.orders_inbox").await, 1);
    fixture.inbox().verify().await.unwrap_err();
    for schema in ["", "Shop", "shop\"", "a.b"] {
        let refused = Inbox::<Postgres>::options().schema(schema).with_pool(fixture.inbox().pool().clone());
        assert!(matches!(refused, Err(StartError::SchemaName(_))), "{schema:?}");
    }
}

#[tokio::test]
async fn a_foreign_scheme_is_refused_and_its_password_is_not_shown() {
    let refused = Inbox::<Postgres>::connect("mysql://shop:secret@localhost/shop").await.unwrap_err().to_string();
    assert!(refused.contains("`mysql`") && refused.contains("`postgres:`") && !refused.contains("secret"), "{refused}");
}
